"""Buffer views: what steps of this set work on, and the arrays that these are in one call."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels import routine as base
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Binding, Temporary


@dataclass(frozen=True, slots=True)
class FlatSlice:
    """`count` elements of a tensor without gaps, from element `start` on in the order of memory."""

    tensor: TensorSpec
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class RowSlice:
    """`count` rows of `length` elements from row `start` on, of a tensor that is rows with a pitch, in elements."""

    tensor: TensorSpec
    start: int
    count: int
    length: int
    pitch: int


#: What a step works on: a tensor of the call, a part of one, or a temporary.
BufferView = base.BufferView | FlatSlice | RowSlice


@dataclass(frozen=True)
class Arrays(Binding[Array | None]):
    """The NumPy arrays of a call."""

    def __getitem__(self, view: BufferView | None) -> Array | None:
        """The buffer's array; None for a tensor that is left out."""
        return None if view is None else self.array(view)

    def array(self, view: BufferView) -> Array:
        """The array of a buffer that is there."""
        if isinstance(view, Temporary):
            own: Array = self.scratch[view.offset : view.offset + view.nbytes]
            return own.view(view.dtype).reshape(view.shape)
        if isinstance(view, FlatSlice):
            return flat(self.array(view.tensor))[view.start : view.start + view.count]
        if isinstance(view, RowSlice):
            array: Array = self.array(view.tensor)
            rows = np.lib.stride_tricks.as_strided(
                array, (view.start + view.count, view.length), (view.pitch * array.itemsize, array.itemsize)
            )
            return rows[view.start :]
        array = self.arrays[id(view)]
        return array


class Place(NamedTuple):
    """Where a view begins. of: equal for views of one extent of the same memory; nbytes: from the start of that on."""

    of: Hashable
    nbytes: int


def place_of(view: BufferView) -> Place:
    """Where it begins."""
    if isinstance(view, Temporary):
        return Place((None, view.nbytes), view.offset)
    if isinstance(view, FlatSlice):
        return Place((id(view.tensor), view.count), view.start * view.tensor.dtype.itemsize)
    if isinstance(view, RowSlice):
        extent = view.count, view.length, view.pitch
        return Place((id(view.tensor), extent), view.start * view.pitch * view.tensor.dtype.itemsize)
    return Place((id(view), None), 0)


def flat(array: Array) -> Array:
    """The elements of an array without gaps in the order of memory."""
    return np.lib.stride_tricks.as_strided(array, (array.size,), (array.itemsize,))
