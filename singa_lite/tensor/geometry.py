"""Shapes, dtypes and strides of tensors: what C order is, and what a view over a block may be."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.common.array_types import DType
from singa_lite.common.arrays import KINDS
from singa_lite.common.checks import is_bfloat16, is_int
from singa_lite.common.errors import ShapeError
from singa_lite.common.strides import ordered_strides

Shape = tuple[int, ...]

#: Kinds of tensors that a device lays out as its kernels like best; "": C order.
LAYOUTS = ("", "image", "filters")


def contiguous_strides(shape: Shape, dtype: DType) -> Shape:
    """Returns the strides of C order, in bytes.

    >>> tensor.contiguous_strides((2, 3), np.dtype("float32"))
    (12, 4)
    """
    return ordered_strides(shape, range(len(shape)), dtype.itemsize)


def check_within(nbytes: int, shape: Shape, dtype: DType, strides: Shape, offset: int) -> None:
    """ShapeError unless the elements lie in a block of so many bytes, which may have slack behind it."""
    size = dtype.itemsize
    end, fits = offset + size, offset >= 0 and not offset % size and len(strides) == len(shape)
    for extent, stride in zip(shape, strides, strict=False):
        end += (extent - 1) * stride
        fits = fits and not stride % size
    if not fits or (end > nbytes and 0 not in shape):
        raise ShapeError(
            f"wanted a view within a block of {nbytes} bytes, a stride for each axis, multiples of {dtype}'s {size} "
            f"bytes, received shape {shape}, strides {strides}, offset {offset}"
        )


def checked_dtype(where: str, given: DTypeLike) -> DType:
    """Returns the dtype as NumPy's. TypeError for one that a tensor cannot have, such as object, and for what is none.

    >>> tensor.checked_dtype("my function", "float32")
    dtype('float32')
    """
    try:
        dtype = given if isinstance(given, np.dtype) else np.dtype(given)
    except (TypeError, ValueError):
        pass
    else:
        if given is not None and (dtype.kind in KINDS or is_bfloat16(dtype)):
            return dtype
    raise TypeError(f"{where}: wanted a bool, integer or float dtype, received {given!s:.100}")


def checked_shape(where: str, given: object, what: str = "shape") -> Shape:
    """Returns the shape, or the strides, as a tuple of Python's ints. TypeError or ShapeError for anything else.

    >>> tensor.checked_shape("my function", [2, np.int64(3)])
    (2, 3)
    """
    if type(given) is tuple:  # as nearly always
        for extent in given:
            if type(extent) is not int or extent < 0:
                break
        else:
            return given
    try:
        shape = tuple(given) if isinstance(given, Iterable) else None
    except TypeError:
        shape = None
    if shape is None or isinstance(given, str | bytes) or not all(map(is_int, shape)):
        raise TypeError(f"{where}: wanted {what}, a tuple of whole numbers such as (5,), received {given!r}")
    if any(extent < 0 for extent in shape):
        raise ShapeError(f"{where}: wanted extents of at least 0, received {what} {shape}")
    return tuple(int(extent) for extent in shape)
