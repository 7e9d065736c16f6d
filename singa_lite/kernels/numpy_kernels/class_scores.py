"""Cross entropy of rows of scores of which only some classes are there at a time."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.activation import subtract_top
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import axis_buffer, axis_shape, line_buffer, pieces
from singa_lite.kernels.numpy_kernels.scratch import BufferSpec, Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.unweighted import clear_unweighted

#: Rows at a time where class ids pick elements, for NumPy allocates what is picked.
_ROWS = 4096


def _row_buffers(x: Shaped) -> list[BufferSpec]:
    """Two numbers a row, and the rows themselves, of a piece."""
    number = axis_buffer(x, 1)
    return [number, number, line_buffer(x, 1)]


@scratch(lambda x, y: bytes_for(*_row_buffers(x)))
def log_sum_exp(x: Array, y: Array, *, scratch: Bytes) -> None:
    """y = the largest + log of the sum of e**(x - the largest)."""
    tops, sums, lines = carve(scratch, *_row_buffers(x))
    for xb, yb in pieces(x, y[:, None], whole=(1,)):
        top, total = (shaped(a, axis_shape(xb.shape, 1)) for a in (tops, sums))
        line = shaped(lines, xb.shape)
        with np.errstate(invalid="ignore"):
            subtract_top(xb, line, 1, top)
            np.exp(line, out=line)
        np.add.reduce(line, axis=1, keepdims=True, out=total)
        np.log(total, out=total)
        np.add(total, top, out=yb)


def softmax_classes_derivative(
    dlosses: Array, x: Array, lse: Array, target: Array, dx: Array, *, first: int, classes: int, share: float
) -> None:
    """Rows of a piece while they are in the cache; then what is at the target's class."""
    for xb, dxb, log_sum, slope in pieces(x, dx, lse[:, None], dlosses[:, None], whole=(1,)):
        np.subtract(xb, log_sum, out=dxb)
        np.exp(dxb, out=dxb)
        if share:
            np.subtract(dxb, share / classes, out=dxb)
        np.multiply(dxb, slope, out=dxb)
    for start in range(0, len(target), _ROWS):
        some = slice(start, start + _ROWS)
        ids = target[some].astype(np.intp) - first
        rows = np.flatnonzero((ids >= 0) & (ids < x.shape[1]))
        dx[some][rows, ids[rows]] -= (1 - share) * dlosses[some][rows]
    clear_unweighted(dlosses, dx)
