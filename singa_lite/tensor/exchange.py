"""Values to NumPy, and tensors of what other libraries and devices hold, by DLPack."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.arrays import check_detached, on_host
from singa_lite.tensor.making import from_host
from singa_lite.tensor.tensor import DeviceSpec, Tensor, found_device


def to_numpy(tensor: Tensor | Array) -> Array:
    """A NumPy array with a copy of the values, C order. Waits for the device."""
    if isinstance(tensor, np.ndarray):
        return np.array(tensor)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"to_numpy: wanted a Tensor or an array, received {type(tensor).__name__}")
    return tensor.device.copy_out(tensor)


def as_tensor(given: object, device: DeviceSpec = None) -> Tensor:
    """A tensor of anything that holds an array: Tensor (moved only if it must), NumPy, CuPy, DLPack, numbers."""
    if isinstance(given, Tensor):
        return given if device is None else given.to_device(device)
    if hasattr(given, "__dlpack__") and not isinstance(given, np.ndarray):
        return from_dlpack(given, device)
    return from_host(given, device)


def from_dlpack(given: object, device: DeviceSpec = None) -> Tensor:
    """A copy of any array that speaks DLPack (PyTorch, JAX, CuPy, NumPy, Tensor), on `device`.

    The values are copied, on the GPU where both are there: a tensor's bytes belong to its device's pool, and arrays of
    others may be read-only. TypeError for a tensor that requires grad, and for a dtype that NumPy has not.
    """
    if not hasattr(given, "__dlpack__") or isinstance(given, type):
        raise TypeError(f"from_dlpack: wanted an array that speaks DLPack, received {type(given).__name__}")
    holder = found_device(device)
    if not isinstance(given, Tensor):
        check_detached("from_dlpack", given)
    here = holder.adopt(given)
    if here is not None:
        made = holder.empty(here.shape, here.dtype)
        holder.run("copy", here, made)
        return made
    if isinstance(given, np.ndarray):  # which DLPack has not all dtypes of
        return from_host(given, holder)
    if not on_host(given) and hasattr(given, "get"):  # CuPy: NumPy cannot read device memory
        return from_host(given.get(), holder)
    return from_host(given, holder)
