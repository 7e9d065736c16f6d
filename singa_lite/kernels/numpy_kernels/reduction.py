"""Sums along axes in float64: a float32 sum over a large batch would lose three digits."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import pieces
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, bytes_for, carve, scratch


def _totals_buffer(y: Shaped) -> BufferSpec:
    """The float64 sums of one piece of y."""
    return (min(y.size, BLOCK),), np.float64


def _reduction_rule(x: Shaped, y: Shaped, **settings: object) -> int:
    """Scratch of a reduction of x to y."""
    return bytes_for(_totals_buffer(y))


@scratch(_reduction_rule)
def reduce_sum(x: Array, y: Array, *, axes: tuple[int, ...], alpha: float, scratch: Bytes) -> None:
    """y = alpha * sum of x along `axes`, y in pieces so that its float64 sums stay small."""
    axes = tuple(axis % x.ndim for axis in axes)
    (totals,) = carve(scratch, _totals_buffer(y))
    kept = y if y.ndim == x.ndim else np.expand_dims(y, axes)
    for yb, xb in pieces(kept, x, whole=axes):
        total = shaped(totals, yb.shape)
        np.add.reduce(xb, axis=axes, dtype=np.float64, keepdims=True, out=total)
        np.multiply(total, alpha, out=yb)


@scratch(_reduction_rule)
def bias_gradient(dy: Array, db: Array, *, axis: int, scratch: Bytes) -> None:
    """db = sum of dy along all axes but `axis`."""
    others = tuple(i for i in range(dy.ndim) if i != axis % dy.ndim)
    reduce_sum(dy, db, axes=others, alpha=1.0, scratch=scratch)
