"""Matrix: a tensor's last two axes as the library's products read them, by rows or by columns."""

from __future__ import annotations

from typing import NamedTuple

from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library import layouts
from singa_lite.kernels.onednn_kernels.library import primitive as p

Extents = tuple[int, ...]


class Matrix(NamedTuple):
    """A tensor, or a view of it, as matrices: its last two axes. strides: in elements."""

    tensor: TensorSpec
    shape: Extents
    strides: Extents

    @property
    def transposed(self) -> Matrix:
        """The same elements with rows and columns exchanged."""
        *lead, rows, columns = self.shape
        *steps, row, column = self.strides
        return Matrix(self.tensor, (*lead, columns, rows), (*steps, column, row))

    @property
    def desc(self) -> p.MemoryDesc:
        """The library's descriptor of it."""
        return self.as_factor(str(self.tensor.dtype))

    def as_factor(self, dtype: str) -> p.MemoryDesc:
        """The descriptor of the same elements in another type, lying so too."""
        return p.memory_desc(self.shape, self.strides, dtype)

    @property
    def lies_by_rows(self) -> bool:
        """Whether the elements of a row lie one behind the other."""
        return self.strides[-1] == 1

    @property
    def in_one(self) -> Matrix | None:
        """All its matrices one below the other, where their rows lie evenly."""
        *lead, rows, columns = self.shape
        below = ordered_strides((*lead, rows), range(len(lead) + 1))
        if self.strides[:-1] != tuple(self.strides[-2] * step for step in below):
            return None
        return Matrix(self.tensor, (below[0] * self.shape[0], columns), self.strides[-2:])

    def among(self, axes: int) -> Matrix:
        """With leading axes of extent 1 before its own, `axes` in all."""
        missing, size = axes - len(self.shape), self.strides[0] * self.shape[0]
        return Matrix(self.tensor, (1,) * missing + self.shape, (size,) * missing + self.strides)


def matrix_of(spec: TensorSpec) -> Matrix | None:
    """None for strides that the library cannot take."""
    strides = list(layouts.strides_of(spec))
    step = 1
    for axis in reversed(range(spec.ndim)):
        if spec.shape[axis] == 1:
            strides[axis] = step
        step = strides[axis] * spec.shape[axis]
    return Matrix(spec, spec.shape, tuple(strides)) if min(strides) > 0 else None
