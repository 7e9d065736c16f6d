"""Tensors made from shapes and numbers, and from values on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from singa_lite.common.array_types import DType
from singa_lite.common.arrays import numbers
from singa_lite.common.checks import is_int, real
from singa_lite.tensor.tensor import DeviceSpec, Tensor, found_device


def empty(shape: Sequence[int], dtype: DTypeLike = np.float32, device: DeviceSpec = None) -> Tensor:
    """A tensor whose values are whatever the memory held."""
    return found_device(device).empty(shape, dtype)


def full(shape: Sequence[int], value: float, dtype: DTypeLike = np.float32, device: DeviceSpec = None) -> Tensor:
    """A tensor with `value` everywhere."""
    made = empty(shape, dtype, device)
    _check_fits(value, made.dtype)
    with made.device.first_values():
        made.device.run("fill", made, value=value)
    return made


def _check_fits(value: float, dtype: DType) -> None:
    """TypeError for what is no number, ValueError for an integer that the dtype does not hold."""
    if isinstance(value, bool | np.bool_):
        return
    if real(value) is None:
        raise TypeError(f"full: wanted a number, received {value!r}")
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (-(2**63), 2**64)
    if (dtype.kind in "iu" or is_int(value)) and not low <= value <= high:
        raise ValueError(f"full: wanted a number that {dtype} holds, received {value!r:.50}")


def zeros(shape: Sequence[int], dtype: DTypeLike = np.float32, device: DeviceSpec = None) -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype, device)


def ones(shape: Sequence[int], dtype: DTypeLike = np.float32, device: DeviceSpec = None) -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype, device)


def from_numpy(array: ArrayLike, device: DeviceSpec = None) -> Tensor:
    """A copy of `array` on `device` (default: `device.default()`), same shape and dtype.

    TypeError for dtypes without numbers in them (object, text, complex), masked arrays, and what is no array.
    """
    return from_host(array, device)


def from_host(array: object, device: DeviceSpec) -> Tensor:
    """`from_numpy`, of what is not yet known to be an array."""
    given = numbers("from_numpy", array)
    made = empty(given.shape, given.dtype.newbyteorder("="), device)
    with made.device.first_values():
        made.device.copy_in(made, given)
    return made


def operand(given: object, beside: Tensor) -> Any:
    """What the operations take: tensors, numbers beside floats, and all else as a tensor of the dtype of `beside`.

    Each operation says whether it takes numbers, so the type is left open.
    TypeError for values that its dtype would cut off, such as fractions beside integers.
    """
    if isinstance(given, Tensor) or (isinstance(given, int | float) and beside.dtype.kind == "f"):
        return given
    array = np.asarray(given, beside.dtype) if isinstance(given, int) else numbers("arithmetic", given)
    if not np.can_cast(array.dtype, beside.dtype, "same_kind"):
        raise TypeError(f"wanted values that fit {beside!r}, received {array.dtype}")
    return from_numpy(array.astype(beside.dtype), beside.device)
