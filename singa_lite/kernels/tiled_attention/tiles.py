"""Attention by tiles: which rows and keys are done at a time, and the buffers that one tile after the other is done in.

    keys     0        key_step            keys
    rows 0   +-----------+-----------+----+
             | tile      |           |    |    causal: what lies right of the diagonal is left out, and tiles end at
             +-----------+-----------+----+    the last key that their last row sees
    row_step |           |           |    |
             +-----------+-----------+----+

A tile has the rows of all query heads that go with one key head, one head below the other, and of `together` such
groups. What a tile reads and writes is copied into buffers without gaps first, so that no stride of a tensor changes
how sums are taken, and nothing that is written may disturb what is still to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.kernels.kernel_set import TensorSpec

#: What is added to the score of a key that a row does not see. Not infinity, which less infinity is NaN.
HIDDEN = -1e30
#: Numbers of float32 that are drawn at a time.
DRAWN = 16 * 1024

Shape = tuple[int, ...]
Buffers = Mapping[str, Array]
BufferSpecs = dict[str, tuple[Shape, DType]]


@dataclass(frozen=True)
class Tiling:
    """Extents, and how they are cut. share: query heads of a key head; together: key heads that are done at a time."""

    samples: int
    rows: int
    keys: int
    kv_heads: int
    share: int
    size: int
    together: int
    row_step: int
    key_step: int
    causal: bool
    dtype: DType

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.kv_heads * self.share

    @property
    def blocks(self) -> list[slice]:
        """The rows that are done at a time."""
        return [slice(at, min(at + self.row_step, self.rows)) for at in range(0, self.rows, self.row_step)]

    @property
    def groups(self) -> list[slice]:
        """The key heads that are done at a time."""
        return [slice(at, at + self.together) for at in range(0, self.kv_heads, self.together)]

    @property
    def pieces(self) -> int:
        """Groups of key heads of all samples: nothing is summed up over them."""
        return self.samples * len(self.groups)

    def tiles(self, block: slice) -> list[slice]:
        """The keys of each tile of these rows."""
        end = min(block.stop, self.keys) if self.causal else self.keys
        return [slice(at, min(at + self.key_step, end)) for at in range(0, end, self.key_step)]

    def is_cut(self, block: slice, tile: slice) -> bool:
        """Whether some row of the block does not see all keys of the tile, as the diagonal goes through."""
        return self.causal and tile.stop - 1 > block.start

    def forward_buffers(self, mask: bool, drops: bool) -> BufferSpecs:
        """What `Forward` works in."""
        rows = self.together * self.share * self.row_step
        names = "query", "result", "product"
        matrices = dict.fromkeys(names, ((rows * self.size,), self.dtype))
        vectors = dict.fromkeys(("top", "new", "shrink", "part", "total"), ((rows,), self.dtype))
        return {**self._shared(mask, drops), **matrices, **vectors, "dead": ((rows,), np.dtype(bool))}

    def backward_buffers(self, mask: bool, drops: bool) -> BufferSpecs:
        """What `Backward` works in."""
        rows = self.together * self.share * self.row_step
        largest = self.together * max(self.share * self.row_step, self.key_step) * self.size
        extents = {"query": rows * self.size, "dy": rows * self.size, "dquery": rows * self.size, "product": largest}
        matrices = {name: ((extent,), self.dtype) for name, extent in extents.items()}
        sums = dict.fromkeys(("dkeys", "dvalues"), ((self.together, self.keys, self.size), self.dtype))
        vectors = dict.fromkeys(("lse", "delta"), ((rows,), self.dtype))
        slopes = {"slopes": ((rows * self.key_step,), self.dtype)}
        return {**self._shared(mask, drops), **matrices, **sums, **slopes, **vectors}

    def _shared(self, mask: bool, drops: bool) -> BufferSpecs:
        """What both directions need: keys and values of a group, a tile of scores, what hides keys, what is kept."""
        rows = self.together * self.share * self.row_step
        found: BufferSpecs = {
            "keys": ((self.together, self.keys, self.size), self.dtype),
            "values": ((self.together, self.keys, self.size), self.dtype),
            "scores": ((rows * self.key_step,), self.dtype),
        }
        if self.causal:
            found["band"] = (self.row_step, self.key_step + self.row_step), self.dtype
        if mask:
            found["hidden"] = (self.keys,), np.dtype(bool)
            found["offsets"] = (self.keys,), self.dtype
        if drops:
            found["kept"] = (rows * self.keys,), np.dtype(bool)
            found["numbers"] = (min(rows * self.keys, DRAWN),), np.dtype(np.float32)
        return found


def tiling(q: Array | TensorSpec, k: Array | TensorSpec, causal: bool, together: int, rows: int, keys: int) -> Tiling:
    """How q and k are cut. together, rows, keys: about as many key heads, rows and keys are done at a time."""
    samples, extent, heads, size = q.shape
    kv_heads = k.shape[2]
    share = heads // kv_heads
    return Tiling(
        samples=samples,
        rows=extent,
        keys=k.shape[1],
        kv_heads=kv_heads,
        share=share,
        size=size,
        together=max(n for n in range(1, min(together, kv_heads) + 1) if kv_heads % n == 0),
        row_step=min(extent, max(rows // share, 1)),
        key_step=min(k.shape[1], keys),
        causal=causal,
        dtype=np.result_type(q.dtype, np.float32),
    )


def cut(buffer: Array, *shape: int) -> Array:
    """The first numbers of a flat buffer in this shape."""
    return buffer[: prod(shape)].reshape(shape)
