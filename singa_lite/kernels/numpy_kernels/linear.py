"""Matrix products and biases: NumPy's BLAS."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.elementwise import activate, activation_bytes
from singa_lite.kernels.numpy_kernels.reduction import bias_gradient
from singa_lite.kernels.numpy_kernels.scratch import RULES, BufferSpec, Bytes, Shaped, bytes_for, carve, scratch

#: Elements of the part of a product that is summed up before it is added to something.
_PART = 1 << 18


def matmul(a: Array, b: Array, y: Array, *, transpose_a: bool, transpose_b: bool) -> None:
    """y = op(a) @ op(b)."""
    left = a.swapaxes(-1, -2) if transpose_a else a
    right = b.swapaxes(-1, -2) if transpose_b else b
    if left.ndim > 2 and right.ndim == 2 and left.size and left.flags.c_contiguous and y.flags.c_contiguous:
        # One product of all rows: NumPy would call BLAS once for each of the leading indices.
        left, y = left.reshape(-1, left.shape[-1]), y.reshape(-1, y.shape[-1])
    np.matmul(left, right, out=y)


def _part(y: Shaped) -> tuple[int, int]:
    """Rows and columns of a part: whole rows or whole columns, whichever are shorter."""
    rows, columns = y.shape
    if rows < columns:
        return rows, max(1, min(columns, _PART // max(rows, 1)))
    return max(1, min(rows, _PART // max(columns, 1))), columns


def _part_buffer(y: Shaped) -> BufferSpec:
    rows, columns = _part(y)
    return (rows * columns,), y.dtype


@scratch(lambda a, b, y, **_: bytes_for(_part_buffer(y)))
def matmul_add(a: Array, b: Array, y: Array, *, transpose_a: bool, transpose_b: bool, scratch: Bytes) -> None:
    """y += op(a) @ op(b), part by part."""
    left = a.swapaxes(0, 1) if transpose_a else a
    right = b.swapaxes(0, 1) if transpose_b else b
    (buffer,) = carve(scratch, _part_buffer(y))
    rows, columns = _part(y)
    for row in range(0, y.shape[0], rows):
        for column in range(0, y.shape[1], max(columns, 1)):
            target = y[row : row + rows, column : column + columns]
            product = buffer[: target.size].reshape(target.shape)
            np.matmul(left[row : row + rows], right[:, column : column + columns], out=product)
            np.add(target, product, out=target)


@scratch(lambda x, weight, bias, y, *, activation="": activation_bytes(y, activation))
def linear(x: Array, weight: Array, bias: Array | None, y: Array, *, activation: str = "", scratch: Bytes) -> None:
    """y = x @ weight + bias, then the activation in place."""
    np.matmul(x, weight, out=y)
    if bias is not None:
        np.add(y, bias, out=y)
    activate(y, activation, scratch)


@scratch(lambda x, dy, dweight, dbias: RULES[bias_gradient](dy, dbias))
def linear_gradient(x: Array, dy: Array, dweight: Array, dbias: Array, *, scratch: Bytes) -> None:
    """The product, then the sums."""
    matmul(x, dy, dweight, transpose_a=True, transpose_b=False)
    bias_gradient(dy, dbias, axis=1, scratch=scratch)


def add_bias(x: Array, bias: Array, y: Array, *, axis: int) -> None:
    """y = x + bias along `axis`."""
    trailing = x.ndim - 1 - axis % x.ndim
    np.add(x, bias.reshape(bias.shape + (1,) * trailing), out=y)
