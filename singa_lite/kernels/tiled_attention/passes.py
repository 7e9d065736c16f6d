"""What both directions of attention by tiles share, over whatever a kernel set does the arithmetic of a tile with.

Launches are bound once for each tile of a block of rows, over buffers that all samples and heads use in turn: so their
number is linear in the lengths, as the buffers are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.philox import NUMBERS, generator
from singa_lite.kernels.tiled_attention.tiles import DRAWN, HIDDEN, Buffers, Tiling, cut

Tile = TypeVar("Tile")


class Arithmetic(Protocol):
    """What a kernel set does in a tile. Matrices: (together, m, n); vectors: (together, m), or (n,) for offsets."""

    def scores(self, a: Array, b: Array, offsets: Array | None, y: Array) -> Launch:
        """y = a @ b^T + offsets."""

    def powers(self, x: Array, rows: Array) -> Launch:
        """x = e**(x - rows)."""

    def score_powers(self, a: Array, b: Array, offsets: Array | None, rows: Array, y: Array) -> Launch:
        """y = e**(a @ b^T + offsets - rows)."""

    def slopes(self, a: Array, b: Array, rows: Array, p: Array, y: Array) -> Launch:
        """y = p * (a @ b^T - rows)."""

    def largest(self, x: Array, y: Array) -> Launch:
        """y = the largest of each row of x."""

    def total(self, x: Array, y: Array) -> Launch:
        """y = the sum of each row of x."""

    def add_product(self, a: Array, b: Array, y: Array, product: Array) -> Launch:
        """y += a @ b. product: as large as y, free to use. The columns of a may be its rows in memory."""


@dataclass(frozen=True)
class Drop:
    """Which probabilities are dropped. key: of `dropout`; p: the share."""

    key: Array
    p: float

    def draw(self, first: int, kept: Array, numbers: Array) -> None:
        """kept, flat: whether the probabilities are kept, of all in C order from number `first` on."""
        draws = generator(self.key, first // NUMBERS)
        draws.random(dtype=np.float32, out=numbers[: first % NUMBERS])
        for at in range(0, kept.size, DRAWN):
            target = kept[at : at + DRAWN]
            flat = numbers[: target.size]
            draws.random(dtype=np.float32, out=flat)
            np.greater_equal(flat, self.p, out=target)


@dataclass(frozen=True)
class Call:
    """One call. tensors: those of the interface by name, but for mask and key, without which these are None."""

    tensors: Mapping[str, Array]
    mask: Array | None
    drop: Drop | None
    scale: float
    buffers: Buffers


class Passes(ABC, Generic[Tile]):
    """Goes over samples, groups of key heads, blocks of rows and tiles. A direction says what is done in each."""

    def __init__(self, tiling: Tiling, call: Call, arithmetic: Arithmetic) -> None:
        self.tiling, self.call, self.arithmetic = tiling, call, arithmetic
        self.buffers = call.buffers
        made: dict[tuple[int, ...], Tile] = {}
        self.tiles: dict[int, list[Tile]] = {}
        for block in tiling.blocks:
            self.tiles[block.start] = [self._once(made, block, tile) for tile in tiling.tiles(block)]

    def _once(self, made: dict[tuple[int, ...], Tile], block: slice, tile: slice) -> Tile:
        """The tile's steps; they are the same for blocks of as many rows, but where the diagonal goes through."""
        key = block.stop - block.start, tile.start, tile.stop, block.start if self.tiling.is_cut(block, tile) else -1
        if key not in made:
            made[key] = self.make(block, tile)
        return made[key]

    @abstractmethod
    def make(self, block: slice, tile: slice) -> Tile:
        """The steps of a tile of keys for a block of rows."""

    @abstractmethod
    def block(self, sample: int, heads: slice, block: slice) -> None:
        """All tiles of these rows of these query heads."""

    def __call__(self) -> None:
        """The whole call."""
        self.work(iter(range(self.tiling.pieces)))

    def work(self, pieces: Iterator[int]) -> None:
        """These pieces of the call: each is a sample's group of key heads, and depends on no other."""
        groups = self.tiling.groups
        with np.errstate(all="ignore"):
            if self.tiling.causal:
                self._draw_band()
            for piece in pieces:
                sample, index = divmod(piece, len(groups))
                self._hide(sample)
                self.group(sample, groups[index])

    def group(self, sample: int, group: slice) -> None:
        """All rows of these key heads."""
        for name, tensor in (("keys", "k"), ("values", "v")):
            np.copyto(self.buffers[name], self.call.tensors[tensor][sample, :, group].swapaxes(0, 1))
            if self.call.mask is not None:  # a probability of 0 times NaN would be NaN
                np.copyto(self.buffers[name], 0, where=self.buffers["hidden"][:, None])
        share = self.tiling.share
        for block in self.tiling.blocks:
            self.block(sample, slice(group.start * share, group.stop * share), block)

    def _draw_band(self) -> None:
        """Row i of the band hides what lies behind column key_step + i."""
        band, start = self.buffers["band"], self.tiling.key_step + 1
        band.fill(0)
        for row, line in enumerate(band):
            line[start + row :] = HIDDEN

    def _hide(self, sample: int) -> None:
        """What the mask adds to the scores of this sample."""
        if self.call.mask is not None:
            hidden, offsets = self.buffers["hidden"], self.buffers["offsets"]
            np.equal(self.call.mask[sample], 0, out=hidden)
            offsets.fill(0)
            np.copyto(offsets, HIDDEN, where=hidden)

    def draw_kept(self, sample: int, heads: slice, block: slice) -> Array | None:
        """(heads, rows, keys): which probabilities are kept; None where nothing is dropped."""
        if self.call.drop is None:
            return None
        tiles, rows = self.tiling, block.stop - block.start
        kept = cut(self.buffers["kept"], heads.stop - heads.start, rows, tiles.keys)
        for head, part in zip(range(heads.start, heads.stop), kept, strict=True):
            first = ((sample * tiles.heads + head) * tiles.rows + block.start) * tiles.keys
            self.call.drop.draw(first, part.reshape(-1), self.buffers["numbers"])
        return kept

    # ---- buffers of a block of rows

    def matrix(self, name: str, rows: int, columns: int) -> Array:
        """(together, share * rows, columns) at the beginning of a buffer."""
        return cut(self.buffers[name], self.tiling.together, self.tiling.share * rows, columns)

    def vector(self, name: str, rows: int) -> Array:
        """(together, share * rows) at the beginning of a buffer."""
        return cut(self.buffers[name], self.tiling.together, self.tiling.share * rows)

    def by_heads(self, a: Array, rows: int) -> Array:
        """A matrix or vector of a block as (heads, rows, ...)."""
        return a.reshape(self.tiling.together * self.tiling.share, rows, *a.shape[2:])

    def part(self, name: str, sample: int, heads: slice, block: slice) -> Array:
        """Of a tensor of the call, these rows as (heads, rows, size)."""
        return self.call.tensors[name][sample, block, heads].swapaxes(0, 1)

    def offsets(self, tile: slice) -> Array | None:
        """What the mask adds to the scores of these keys."""
        return None if self.call.mask is None else self.buffers["offsets"][tile]

    def cut_off(self, block: slice, tile: slice, scores: Array) -> Launch | None:
        """Hides what lies right of the diagonal; None where all is left of it."""
        if not self.tiling.is_cut(block, tile):
            return None
        rows, offset = block.stop - block.start, self.tiling.key_step - block.start
        grid = scores.reshape(self.tiling.together, self.tiling.share, rows, -1)
        band = self.buffers["band"][:rows, tile.start + offset : tile.stop + offset]
        return partial(np.add, grid, band, out=grid)
