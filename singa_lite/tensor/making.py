"""Tensors made from shapes, numbers and arrays of any library, by DLPack too; values to NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from singa_lite.common.array_types import Array, DType
from singa_lite.common.arrays import check_detached, numbers, on_host
from singa_lite.common.checks import is_int, real
from singa_lite.common.option_version import VERSION
from singa_lite.tensor.devices import found_device
from singa_lite.tensor.geometry import checked_dtype
from singa_lite.tensor.tensor import DeviceSpec, Tensor, TensorDevice


def empty(shape: Sequence[int], dtype: DTypeLike = np.float32, device: DeviceSpec = None) -> Tensor:
    """Returns a tensor whose values are whatever the memory held.

    >>> tensor.empty((2, 3), "float64").shape
    (2, 3)
    """
    holder: TensorDevice = found_device(device)
    return holder.empty(shape, dtype)


def full(shape: Sequence[int], value: float, dtype: DTypeLike = np.float32, device: DeviceSpec = None) -> Tensor:
    """Returns a tensor with `value` everywhere.

    >>> print(tensor.full((2, 3), 0.5))
    [[0.5 0.5 0.5]
     [0.5 0.5 0.5]]
    """
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
    """Returns a tensor of zeros.

    >>> print(tensor.zeros((2, 3), "int64"))
    [[0 0 0]
     [0 0 0]]
    """
    return full(shape, 0, dtype, device)


def ones(shape: Sequence[int], dtype: DTypeLike = np.float32, device: DeviceSpec = None) -> Tensor:
    """Returns a tensor of ones.

    >>> print(tensor.ones((2, 3)))
    [[1. 1. 1.]
     [1. 1. 1.]]
    """
    return full(shape, 1, dtype, device)


def from_numpy(array: ArrayLike, device: DeviceSpec = None) -> Tensor:
    """Returns a copy of `array` on `device` (default: `device.default()`), of the same shape and dtype.

    TypeError for dtypes without numbers in them (object, text, complex), masked arrays, and what is no array.

    >>> tensor.from_numpy(np.ones((2, 3), "float32"))
    <Tensor (2, 3) float32 on cpu>
    """
    given = numbers("from_numpy", array)
    made = empty(given.shape, given.dtype.newbyteorder("="), device)
    with made.device.first_values():
        made.device.copy_in(made, given)
    return made


def store_as(tensor: Tensor, dtype: DTypeLike) -> None:
    """Rounds the values of a tensor to another float dtype; from then on it lies over other bytes."""
    device = tensor.device
    made: Tensor = device.empty(tensor.shape, checked_dtype("store_as", dtype), tensor.memory_order())
    with device.first_values():
        device.run("copy", tensor, made)
    VERSION.rise()
    tensor._block, tensor.dtype, tensor.strides, tensor.offset = made.block, made.dtype, made.strides, 0


def operand(given: object, beside: Tensor) -> Any:
    """Returns what the operations take: tensors, numbers beside floats, and all else as a tensor of the dtype of
    `beside`.

    Each operation says whether it takes numbers, so the type is left open.
    TypeError for values that its dtype would cut off, such as fractions beside integers.

    >>> tensor.operand([1, 2], tensor.ones((2,), "float64"))
    <Tensor (2,) float64 on cpu>
    """
    if isinstance(given, Tensor) or (isinstance(given, int | float) and beside.dtype.kind == "f"):
        return given
    array = np.asarray(given, beside.dtype) if isinstance(given, int) else numbers("arithmetic", given)
    if not np.can_cast(array.dtype, beside.dtype, "same_kind"):
        raise TypeError(f"wanted values that fit {beside!r}, received {array.dtype}")
    return from_numpy(array.astype(beside.dtype), beside.device)


def to_numpy(tensor: Tensor | Array) -> Array:
    """Returns a NumPy array with a copy of the values, in C order. Waits for the device.

    >>> tensor.to_numpy(tensor.ones((2, 3)))
    array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32)
    """
    if isinstance(tensor, np.ndarray):
        return np.array(tensor)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"to_numpy: wanted a Tensor or an array, received {type(tensor).__name__}")
    return tensor.device.copy_out(tensor)


def as_tensor(given: object, device: DeviceSpec = None) -> Tensor:
    """Returns a tensor of anything that holds an array: Tensor (moved only if it must), NumPy, CuPy, DLPack, numbers.

    >>> tensor.as_tensor([[1, 2, 3], [4, 5, 6]])
    <Tensor (2, 3) int64 on cpu>
    """
    if isinstance(given, Tensor):
        return given if device is None else given.to_device(device)
    if hasattr(given, "__dlpack__") and not isinstance(given, np.ndarray):
        return from_dlpack(given, device)
    return from_numpy(cast(ArrayLike, given), device)  # which says what is none


def from_dlpack(given: object, device: DeviceSpec = None) -> Tensor:
    """Returns a copy of any array that speaks DLPack (PyTorch, JAX, CuPy, NumPy, Tensor), on `device`.

    The values are copied, on the GPU where both are there: a tensor's bytes belong to its device's pool, and arrays of
    others may be read-only. TypeError for a tensor that requires grad, and for a dtype that NumPy has not.

    >>> print(tensor.from_dlpack(np.array([1.0, 2.0])))
    [1. 2.]
    """
    if not hasattr(given, "__dlpack__") or isinstance(given, type):
        raise TypeError(f"from_dlpack: wanted an array that speaks DLPack, received {type(given).__name__}")
    holder: TensorDevice = found_device(device)
    if not isinstance(given, Tensor):
        check_detached("from_dlpack", given)
    here = holder.adopt(given)
    if here is not None:
        made = holder.empty(here.shape, here.dtype)
        holder.run("copy", here, made)
        return made
    if not isinstance(given, np.ndarray) and not on_host(given) and hasattr(given, "get"):
        return from_numpy(given.get(), holder)  # CuPy: NumPy cannot read device memory
    return from_numpy(cast(ArrayLike, given), holder)
