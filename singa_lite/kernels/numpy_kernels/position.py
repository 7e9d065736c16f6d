"""Rotary positions, two halves of the last axis, piece by piece."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import pieces
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, bytes_for, carve, scratch


def _half_buffers(x: Shaped) -> list[BufferSpec]:
    """Two temporaries for a piece of half of x."""
    return [((min(max(x.size // 2, 1), BLOCK),), x.dtype)] * 2


@scratch(lambda x, table, y, **_: bytes_for(*_half_buffers(x)))
def rotary(x: Array, table: Array, y: Array, *, axis: int, inverse: bool, scratch: Bytes) -> None:
    """The first half waits in a temporary, as y may lie over x."""
    half = table.shape[-1]
    along = tuple(extent if i == axis % x.ndim else 1 for i, extent in enumerate(x.shape[:-1]))
    cos, sin = (factors.reshape(*along, half) for factors in table)
    (near, far), (first, second) = ((t[..., :half], t[..., half:]) for t in (x, y))
    turned, crossed = carve(scratch, *_half_buffers(x))
    plus, minus = (np.subtract, np.add) if inverse else (np.add, np.subtract)
    for a, b, c, s, ya, yb in pieces(near, far, cos, sin, first, second):
        kept, other = shaped(turned, a.shape), shaped(crossed, a.shape)
        np.multiply(a, c, out=kept)
        np.multiply(b, s, out=other)
        minus(kept, other, out=kept)
        np.multiply(a, s, out=other)
        np.multiply(b, c, out=yb)
        plus(yb, other, out=yb)
        np.copyto(ya, kept)
