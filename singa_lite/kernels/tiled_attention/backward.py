"""Attention by tiles, backward: the probabilities of a tile are made again from the log of the sum of each row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.tiled_attention.passes import Passes
from singa_lite.kernels.tiled_attention.tiles import cut


@dataclass(frozen=True)
class BackwardTile:
    """The steps of a tile. p, ds: probabilities and the derivative by the scores, (heads, rows, keys)."""

    keys: slice
    powers: list[Launch]
    slopes: Launch
    p: Array
    ds: Array
    to_values: Launch
    to_query: Launch
    to_keys: Launch


class Backward(Passes[BackwardTile]):
    """dq, dk and dv."""

    def make(self, block: slice, tile: slice) -> BackwardTile:
        """The steps of a tile of keys for a block of rows."""
        rows, columns, size = block.stop - block.start, tile.stop - tile.start, self.tiling.size
        p, ds = self.matrix("scores", rows, columns), self.matrix("slopes", rows, columns)
        query, dy, dquery = (self.matrix(name, rows, size) for name in ("query", "dy", "dquery"))
        buffers, add = self.buffers, self.arithmetic.add_product
        product = partial(cut, buffers["product"], self.tiling.together)
        used = p if self.call.drop is None else ds  # where ds first holds what is kept of p
        return BackwardTile(
            tile,
            self._powers(block, tile, p),
            self._slopes(rows, tile, p, ds),
            self.by_heads(p, rows),
            self.by_heads(ds, rows),
            add(used.swapaxes(1, 2), dy, buffers["dvalues"][:, tile], product(columns, size)),
            add(ds, buffers["keys"][:, tile], dquery, product(dquery.shape[1], size)),
            add(ds.swapaxes(1, 2), query, buffers["dkeys"][:, tile], product(columns, size)),
        )

    def _powers(self, block: slice, tile: slice, p: Array) -> list[Launch]:
        """p = the probabilities again."""
        rows, do = block.stop - block.start, self.arithmetic
        query, keys = self.matrix("query", rows, self.tiling.size), self.buffers["keys"][:, tile]
        offsets, lse = self.offsets(tile), self.vector("lse", rows)
        cut_off = self.cut_off(block, tile, p)
        if cut_off is None:
            return [do.score_powers(query, keys, offsets, lse, p)]
        return [do.scores(query, keys, offsets, p), cut_off, do.powers(p, lse)]

    def _slopes(self, rows: int, tile: slice, p: Array, ds: Array) -> Launch:
        """ds = the derivative by the scores; where probabilities are dropped, dy @ v^T alone."""
        dy, values = self.matrix("dy", rows, self.tiling.size), self.buffers["values"][:, tile]
        if self.call.drop is not None:
            return self.arithmetic.scores(dy, values, None, ds)
        return self.arithmetic.slopes(dy, values, self.vector("delta", rows), p, ds)

    def group(self, sample: int, group: slice) -> None:
        """All rows of these key heads."""
        dkeys, dvalues = self.buffers["dkeys"], self.buffers["dvalues"]
        dkeys.fill(0)
        dvalues.fill(0)
        super().group(sample, group)
        if self.call.drop is not None:
            np.divide(dvalues, 1 - self.call.drop.p, out=dvalues)
        for name, total in (("dk", dkeys), ("dv", dvalues)):
            np.copyto(self.call.tensors[name][sample, :, group].swapaxes(0, 1), total, casting="same_kind")

    def block(self, sample: int, heads: slice, block: slice) -> None:
        """All tiles of these rows of these query heads."""
        rows, size = block.stop - block.start, self.tiling.size
        query, dy, dquery = (self.by_heads(self.matrix(n, rows, size), rows) for n in ("query", "dy", "dquery"))
        lse, delta = (self.by_heads(self.vector(name, rows), rows) for name in ("lse", "delta"))
        part = partial(self.part, sample=sample, heads=heads, block=block)
        np.multiply(part("q"), self.call.scale, out=query)
        np.copyto(lse, self.call.tensors["lse"][sample, heads, block])
        np.multiply(lse, 0, out=delta)  # 0, or NaN, which a library's e**NaN would hide
        np.add(part("dy"), delta[..., None], out=dy)
        np.multiply(dy, part("y"), out=dquery)
        np.add.reduce(dquery, axis=2, out=delta)
        dquery.fill(0)
        kept = self.draw_kept(sample, heads, block)
        for tile in self.tiles[block.start]:
            self._add_tile(tile, delta, kept)
        np.multiply(dquery, self.call.scale, out=part("dq"), casting="same_kind")

    def _add_tile(self, tile: BackwardTile, delta: Array, kept: Array | None) -> None:
        for launch in tile.powers:
            launch()
        if kept is None:
            tile.slopes()
            tile.to_values()
        else:
            self._drop(tile, delta, kept[..., tile.keys])
        tile.to_query()
        tile.to_keys()

    def _drop(self, tile: BackwardTile, delta: Array, kept: Array) -> None:
        """The same two where probabilities are dropped: ds first holds what is kept of p."""
        drop = self.call.drop
        np.multiply(tile.p, kept, out=tile.ds)
        tile.to_values()
        tile.slopes()
        np.multiply(tile.ds, kept, out=tile.ds)
        np.divide(tile.ds, 1.0 if drop is None else 1 - drop.p, out=tile.ds)
        np.subtract(tile.ds, delta[..., None], out=tile.ds)
        np.multiply(tile.ds, tile.p, out=tile.ds)
