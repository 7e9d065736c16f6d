"""Matrix: a tensor's last two axes as BLAS reads them, by rows or by columns, and the axes before them as a batch."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from singa_lite.common.strides import reshaped_strides
from singa_lite.kernels.kernel_set import TensorSpec

#: Rows and columns are 32 bits wide in BLAS.
MOST = (1 << 31) - 1


class Matrix(NamedTuple):
    """Matrices of a tensor, by rows: the elements of a row lie one behind the other; or by columns.

    leading: elements from one row to the next, by columns from one column to the next; stride: elements from one
    matrix of the batch to the next, 0 where there is one only.
    """

    batch: int
    rows: int
    columns: int
    leading: int
    stride: int
    by_columns: bool

    @property
    def transposed(self) -> Matrix:
        """The same memory."""
        return self._replace(rows=self.columns, columns=self.rows, by_columns=not self.by_columns)

    @property
    def is_even(self) -> bool:
        """Whether the rows of all its matrices lie evenly, those of the next one behind those of the last."""
        return not self.by_columns and (self.batch == 1 or self.stride == self.rows * self.leading)

    @property
    def in_one(self) -> Matrix:
        """All its matrices one below the other; of even ones only."""
        return self._replace(batch=1, rows=self.batch * self.rows, stride=0)


def matrix(spec: TensorSpec) -> Matrix | None:
    """The tensor's matrices, by rows if they can be read so; None for strides that are neither."""
    if spec.ndim < 2 or max(spec.shape[-2:]) > MOST or any(step % spec.dtype.itemsize for step in spec.strides):
        return None
    strides = [step // spec.dtype.itemsize for step in spec.strides]
    batch = prod(spec.shape[:-2])
    outer = reshaped_strides(spec.shape[:-2], strides[:-2], (batch,))
    if outer is None or outer[0] < 0 or batch > MOST:
        return None
    (rows, columns), (row, column) = spec.shape[-2:], strides[-2:]
    leading = _leading_dimension(rows, row, columns, column)
    if leading is not None:
        return Matrix(batch, rows, columns, leading, outer[0], by_columns=False)
    leading = _leading_dimension(columns, column, rows, row)
    return None if leading is None else Matrix(batch, rows, columns, leading, outer[0], by_columns=True)


def _leading_dimension(rows: int, row: int, columns: int, column: int) -> int | None:
    """The leading dimension by rows: those without gaps inside, which do not overlap; an extent of 1 has no stride."""
    if column != 1 and columns != 1:
        return None
    if rows == 1:
        return columns
    return row if row >= columns else None
