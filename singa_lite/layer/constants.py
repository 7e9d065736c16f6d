"""Constants: tensors of values that follow from options, one for all layers of a device that need the same."""

from __future__ import annotations

from hashlib import sha256
from typing import TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from singa_lite.common.array_types import Array
from singa_lite.device import Device
from singa_lite.tensor import Shape, Tensor

_Key: TypeAlias = tuple[Shape, str, bytes]

_shared: WeakKeyDictionary[Device, WeakValueDictionary[_Key, Tensor]] = WeakKeyDictionary()


def shared_constant(device: Device, values: Array) -> Tensor:
    """The tensor of these values on the device, which nobody may overwrite. It lives as long as a layer holds it."""
    key = values.shape, values.dtype.str, sha256(values.tobytes()).digest()
    held = _shared.setdefault(device, WeakValueDictionary())
    found = held.get(key)
    if found is None:
        found = device.empty(values.shape, values.dtype)
        found.copy_from_numpy(values)
        held[key] = found
    return found
