"""Matrix products and biases: NumPy's BLAS."""

from __future__ import annotations

import numpy as np

from singa_lite.array_types import Array


def matmul(a: Array, b: Array, y: Array, *, transpose_a: bool, transpose_b: bool) -> None:
    """y = op(a) @ op(b)."""
    left = a.swapaxes(-1, -2) if transpose_a else a
    right = b.swapaxes(-1, -2) if transpose_b else b
    if left.ndim > 2 and right.ndim == 2 and left.size and left.flags.c_contiguous and y.flags.c_contiguous:
        # One product of all rows: NumPy would call BLAS once for each of the leading indices.
        left, y = left.reshape(-1, left.shape[-1]), y.reshape(-1, y.shape[-1])
    np.matmul(left, right, out=y)


def linear(x: Array, weight: Array, bias: Array | None, y: Array) -> None:
    """y = x @ weight + bias."""
    np.matmul(x, weight, out=y)
    if bias is not None:
        np.add(y, bias, out=y)


def add_bias(x: Array, bias: Array, y: Array, *, axis: int) -> None:
    """y = x + bias along `axis`."""
    trailing = x.ndim - 1 - axis % x.ndim
    np.add(x, bias.reshape(bias.shape + (1,) * trailing), out=y)
