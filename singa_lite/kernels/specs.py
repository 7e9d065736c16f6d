"""Specs: all that a kernel may go by of its tensors before there are bytes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol

from singa_lite.common.array_types import DType
from singa_lite.common.strides import without_gaps

#: What tells specs apart: shape, dtype and strides.
SpecKey = tuple[tuple[int, ...], DType, tuple[int, ...]]


class Described(Protocol):
    """A tensor, an array or what stands for one: whatever has a shape, a dtype and strides (bytes)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the axes."""

    @property
    def dtype(self) -> DType:
        """Of the elements."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""


class TensorSpec:
    """Shape, dtype and strides (bytes) of a tensor: all that a kernel may go by before there are bytes."""

    __slots__ = ("dtype", "ndim", "shape", "size", "strides")

    def __init__(self, shape: tuple[int, ...], dtype: DType, strides: tuple[int, ...]) -> None:
        self.shape = shape
        self.dtype = dtype
        self.strides = strides
        self.ndim = len(shape)
        self.size = prod(shape)

    @property
    def key(self) -> SpecKey:
        """Equal for equal specs."""
        return self.shape, self.dtype, self.strides

    def without_gaps(self, dtype: DType | None = None) -> TensorSpec:
        """The spec of a tensor without gaps whose axes lie in the same order. dtype: by default its own."""
        dtype = dtype or self.dtype
        return TensorSpec(self.shape, dtype, without_gaps(self.shape, self.strides, dtype.itemsize))


#: The specs of a call's tensors in the interface's order, None where one is left out.
TensorSpecs = tuple[TensorSpec | None, ...]


def specs_of(tensors: Sequence[Described | None]) -> TensorSpecs:
    """The spec of each tensor or array."""
    return tuple(None if tensor is None else spec_of(tensor) for tensor in tensors)


def spec_of(tensor: Described) -> TensorSpec:
    """The spec of a tensor or array."""
    return TensorSpec(tensor.shape, tensor.dtype, tensor.strides)
