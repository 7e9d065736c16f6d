"""What both directions of attention by tiles share: how rows and keys are cut, buffers, and what hides keys.

    keys     0        key_step            keys
    rows 0   +-----------+-----------+----+
             | tile      |           |    |    causal: what lies right of the diagonal is left out, and tiles end at
             +-----------+-----------+----+    the last key that their last row sees
    row_step |           |           |    |
             +-----------+-----------+----+

A tile has the rows of all query heads that go with one key head, one head below the other. What a tile reads and writes
is copied into buffers without gaps first, so that no stride of a tensor changes how sums are taken, and nothing that is
written may disturb what is still to be read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import prod

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.scratch import BufferSpec, Bytes, bytes_for, carve
from singa_lite.kernels.philox import NUMBERS, generator

#: Rows and keys of a tile: its scores are 128 KiB in float32, a part of a core's cache.
ROWS, KEYS = 128, 256
#: What is added to the score of a key that a row does not see. Not infinity, which less infinity is NaN.
HIDDEN = -1e30
#: Numbers of float32 that are drawn at a time.
DRAWN = 16 * 1024


class Tiles(ABC):
    """Goes over samples, key heads, blocks of rows and tiles of keys. A direction says what is done in each.

    tensors: those of the interface by name, also before there are bytes, for `scratch_bytes`; causal, scale, p:
    settings, p where there is a key.
    """

    def __init__(
        self, tensors: Mapping[str, Array | None], scratch: Bytes | None, causal: bool, scale: float, p: float = 0.0
    ) -> None:
        self.given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        self.causal, self.scale, self.p = causal, scale, p
        _, self.rows, self.heads, self.size = self.given["q"].shape
        self.samples, self.keys, self.kv_heads, _ = self.given["k"].shape
        self.share = self.heads // self.kv_heads
        self.row_step = min(self.rows, max(ROWS // self.share, 1))
        self.key_step = min(self.keys, KEYS)
        self.lines = self.share * self.row_step
        specs = self._buffer_specs()
        self.scratch_bytes = bytes_for(*specs.values())
        if scratch is not None:
            self.buffers = dict(zip(specs, carve(scratch, *specs.values()), strict=True))

    def _buffer_specs(self) -> dict[str, BufferSpec]:
        """Numbers of each buffer: keys and values of a head, a tile of scores, what hides keys, what is kept."""
        dtype = np.result_type(self.given["q"].dtype, np.float32)
        counts = dict.fromkeys(("keys", "values"), self.keys * self.size)
        counts |= {"scores": self.lines * self.key_step, "query": self.lines * self.size}
        counts |= {"product": max(self.lines, self.key_step) * self.size, **self.own_buffers()}
        if self.causal:
            counts["band"] = self.row_step * (self.key_step + self.row_step)
        specs: dict[str, BufferSpec] = {name: ((count,), dtype) for name, count in counts.items()}
        if "mask" in self.given:
            specs |= {"hidden": ((self.keys,), np.bool_), "offsets": ((self.keys,), dtype)}
        if "first" in self.given:
            specs |= {"firsts": ((self.rows,), np.int64), "distances": ((self.row_step,), np.int64)}
            specs |= {"places": ((self.key_step,), np.int64)}
            specs |= {"earlier": ((self.row_step * self.key_step,), np.bool_)}
        if "key" in self.given:
            drawn = self.lines * self.keys
            specs |= {"kept": ((drawn,), np.bool_), "numbers": ((min(drawn, DRAWN),), np.float32)}
        return specs

    @abstractmethod
    def own_buffers(self) -> dict[str, int]:
        """Numbers of the buffers that this direction has beside those of both."""

    @abstractmethod
    def block(self, sample: int, heads: slice, block: slice) -> None:
        """All tiles of these rows of these query heads."""

    def __call__(self) -> None:
        """The whole call."""
        with np.errstate(all="ignore"):
            if self.causal:
                self._draw_band()
            if "first" in self.given:
                count_up(self.buffers["places"])
            for sample in range(self.samples):
                self._hide(sample)
                for head in range(self.kv_heads):
                    self.head(sample, head)

    def head(self, sample: int, head: int) -> None:
        """All rows of this key head."""
        for name, tensor in (("keys", "k"), ("values", "v")):
            lines = self.matrix(name, self.keys, self.size)
            np.copyto(lines, self.given[tensor][sample, :, head])
            if "mask" in self.given:  # a probability of 0 times NaN would be NaN
                np.copyto(lines, 0, where=self.buffers["hidden"][:, None])
        for start in range(0, self.rows, self.row_step):
            block = slice(start, min(start + self.row_step, self.rows))
            self.block(sample, slice(head * self.share, (head + 1) * self.share), block)

    def tiles(self, block: slice) -> list[slice]:
        """The keys of each tile of these rows."""
        end = min(block.stop, self.keys) if self.causal else self.keys
        first = max(0, int(self.buffers["firsts"][block].min())) if "first" in self.given else 0
        begin = first // self.key_step * self.key_step
        return [slice(at, min(at + self.key_step, end)) for at in range(begin, end, self.key_step)]

    def _draw_band(self) -> None:
        """Row i of the band hides what lies behind column key_step + i."""
        band, start = self.matrix("band", self.row_step, self.key_step + self.row_step), self.key_step + 1
        band.fill(0)
        for row, line in enumerate(band):
            line[start + row :] = HIDDEN

    def _hide(self, sample: int) -> None:
        """What the mask adds to the scores of this sample, and the first keys that its rows see."""
        if "first" in self.given:
            np.copyto(self.buffers["firsts"], self.given["first"][sample])
        if "mask" in self.given:
            hidden, offsets = self.buffers["hidden"], self.buffers["offsets"]
            np.equal(self.given["mask"][sample], 0, out=hidden)
            offsets.fill(0)
            np.copyto(offsets, HIDDEN, where=hidden)

    def scores(self, block: slice, tile: slice) -> Array:
        """(share * rows, keys): the scores of this tile, whose rows are in the buffer "query"."""
        rows, keys = block.stop - block.start, tile.stop - tile.start
        scores = self.matrix("scores", self.share * rows, keys)
        np.matmul(self.matrix("query", self.share * rows, self.size), self.lines_of("keys", tile).T, out=scores)
        if "mask" in self.given:
            np.add(scores, self.buffers["offsets"][tile], out=scores)
        if self.causal and tile.stop - 1 > block.start:  # the diagonal goes through
            offset, grid = self.key_step - block.start, scores.reshape(self.share, rows, keys)
            band = self.matrix("band", self.row_step, self.key_step + self.row_step)
            np.add(grid, band[:rows, tile.start + offset : tile.stop + offset], out=grid)
        if "first" in self.given:
            self._hide_earlier(block, tile, scores.reshape(self.share, rows, keys))
        return scores

    def _hide_earlier(self, block: slice, tile: slice, grid: Array) -> None:
        """Hides keys that come before the first one that a row sees. grid: (share, rows, keys)."""
        rows, keys = grid.shape[1:]
        distances, earlier = self.matrix("distances", rows), self.matrix("earlier", rows, keys)
        np.subtract(self.buffers["firsts"][block], tile.start, out=distances)
        np.less(self.buffers["places"][:keys], distances[:, None], out=earlier)
        np.copyto(grid, HIDDEN, where=earlier)

    def add_product(self, a: Array, b: Array, y: Array) -> None:
        """y += a @ b."""
        product = self.matrix("product", *y.shape)
        np.matmul(a, b, out=product)
        np.add(y, product, out=y)

    def draw_kept(self, sample: int, heads: slice, block: slice) -> Array | None:
        """(share * rows, keys): which probabilities are kept; None where nothing is dropped."""
        if "key" not in self.given:
            return None
        rows = block.stop - block.start
        kept = self.matrix("kept", self.share, rows * self.keys)
        for head, part in zip(range(heads.start, heads.stop), kept, strict=True):
            self._draw(((sample * self.heads + head) * self.rows + block.start) * self.keys, part)
        return kept.reshape(self.share * rows, self.keys)

    def _draw(self, first: int, kept: Array) -> None:
        """kept: whether the probabilities are kept, of all in C order from number `first` on."""
        draws, numbers = generator(self.given["key"], first // NUMBERS), self.buffers["numbers"]
        draws.random(dtype=np.float32, out=numbers[: first % NUMBERS])
        for at in range(0, kept.size, DRAWN):
            target = kept[at : at + DRAWN]
            flat = numbers[: target.size]
            draws.random(dtype=np.float32, out=flat)
            np.greater_equal(flat, self.p, out=target)

    # ---- buffers of a block of rows

    def matrix(self, name: str, *shape: int) -> Array:
        """A buffer's first numbers in this shape."""
        return cut(self.buffers[name], *shape)

    def lines_of(self, name: str, tile: slice) -> Array:
        """Those of these keys in a buffer of all keys."""
        return self.matrix(name, self.keys, self.size)[tile]

    def by_heads(self, a: Array) -> Array:
        """A matrix or vector of a block as (share, rows, ...)."""
        return a.reshape(self.share, -1, *a.shape[1:])

    def part(self, name: str, sample: int, heads: slice, block: slice) -> Array:
        """Of a tensor of the call, these rows as (share, rows, size)."""
        return self.given[name][sample, block, heads].swapaxes(0, 1)


def count_up(numbers: Array) -> None:
    """Fills a vector with 0, 1, 2 and so on."""
    numbers.fill(1)
    np.add.accumulate(numbers, out=numbers)
    np.subtract(numbers, 1, out=numbers)


def cut(buffer: Array, *shape: int) -> Array:
    """The first numbers of a flat buffer in this shape."""
    return buffer[: prod(shape)].reshape(shape)
