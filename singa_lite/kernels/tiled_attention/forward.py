"""Attention by tiles, forward.

For each row the largest score so far and the sum of e**(score - largest) are kept, and what was summed up is scaled
whenever a larger score comes (Milakov and Gimelshein, arXiv 1805.02867; Dao and others, arXiv 2205.14135).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.tiled_attention.passes import Passes
from singa_lite.kernels.tiled_attention.tiles import HIDDEN


class QueryBlock(NamedTuple):
    """The buffers of a block of so many rows. top: the largest score; total: the sum of powers; result: y so far."""

    query: Array
    result: Array
    top: Array
    new: Array
    shrink: Array
    part: Array
    total: Array
    dead: Array


@dataclass(frozen=True)
class ForwardTile:
    """The steps of a tile. scores: those of its keys; p: the probabilities, (heads, rows, keys)."""

    keys: slice
    scores: list[Launch]
    largest: Launch
    powers: Launch
    total: Launch
    p: Array
    add: Launch


class Forward(Passes[ForwardTile]):
    """y and lse."""

    @cached_property
    def _rows(self) -> dict[int, QueryBlock]:
        """By the number of rows, of which there are at most two."""
        counts = {block.stop - block.start for block in self.tiling.blocks}
        matrices, vectors = QueryBlock._fields[:2], QueryBlock._fields[2:]
        return {
            count: QueryBlock(
                *(self.matrix(name, count, self.tiling.size) for name in matrices),
                *(self.vector(name, count) for name in vectors),
            )
            for count in counts
        }

    def make(self, block: slice, tile: slice) -> ForwardTile:
        """The steps of a tile of keys for a block of rows."""
        count, do = block.stop - block.start, self.arithmetic
        rows, product = self._rows[count], self.matrix("product", count, self.tiling.size)
        scores = self.matrix("scores", count, tile.stop - tile.start)
        scored = do.scores(rows.query, self.buffers["keys"][:, tile], self.offsets(tile), scores)
        cut_off = self.cut_off(block, tile, scores)
        return ForwardTile(
            tile,
            [scored] if cut_off is None else [scored, cut_off],
            do.largest(scores, rows.part),
            do.powers(scores, rows.top),
            do.total(scores, rows.part),
            self.by_heads(scores, count),
            do.add_product(scores, self.buffers["values"][:, tile], rows.result, product),
        )

    def block(self, sample: int, heads: slice, block: slice) -> None:
        """All tiles of these rows of these query heads."""
        count = block.stop - block.start
        rows = self._rows[count]
        np.multiply(self.part("q", sample, heads, block), self.call.scale, out=self.by_heads(rows.query, count))
        rows.top.fill(-np.inf)
        rows.total.fill(0)
        rows.result.fill(0)
        kept = self.draw_kept(sample, heads, block)
        for tile in self.tiles[block.start]:
            _add_tile(tile, rows, kept)
        self._finish(sample, heads, block, rows)

    def _finish(self, sample: int, heads: slice, block: slice, rows: QueryBlock) -> None:
        """y = what was summed up / total, lse = top + log of total; 0 of rows that see no key."""
        count, (top, part, total, dead) = block.stop - block.start, (rows.top, rows.part, rows.total, rows.dead)
        np.copyto(total, np.nan, where=np.greater(total, -HIDDEN, out=dead))  # a library's e**NaN may be a number
        np.log(total, out=part)
        np.add(part, top, out=part)
        np.less(top, HIDDEN / 2, out=dead)
        np.copyto(part, 0, where=dead)
        np.copyto(self.call.tensors["lse"][sample, heads, block], self.by_heads(part, count), casting="same_kind")
        np.copyto(total, np.inf, where=dead)
        if self.call.drop is not None:
            np.multiply(total, 1 - self.call.drop.p, out=total)
        result, divisor = self.by_heads(rows.result, count), self.by_heads(total, count)[..., None]
        np.divide(result, divisor, out=self.part("y", sample, heads, block))


def _add_tile(tile: ForwardTile, rows: QueryBlock, kept: Array | None) -> None:
    for launch in tile.scores:
        launch()
    tile.largest()
    _raise_top(rows)
    tile.powers()
    tile.total()
    np.multiply(rows.total, rows.shrink, out=rows.total)
    np.add(rows.total, rows.part, out=rows.total)
    if kept is not None:
        np.multiply(tile.p, kept[..., tile.keys], out=tile.p)
    if tile.keys.start:
        np.multiply(rows.result, rows.shrink[..., None], out=rows.result)
    tile.add()


def _raise_top(rows: QueryBlock) -> None:
    """top = the largest so far; shrink: by what all before it shrinks."""
    np.maximum(rows.top, rows.part, out=rows.new)
    np.subtract(rows.top, rows.new, out=rows.shrink)
    np.exp(rows.shrink, out=rows.shrink)
    np.copyto(rows.top, rows.new)
