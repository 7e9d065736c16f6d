"""Devices: the CPU, GPUs, and which one serves where none is named."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from singa_lite.common.errors import DeviceError
from singa_lite.common.threads import set_threads as set_threads
from singa_lite.common.threads import threads as threads
from singa_lite.device.abstract import abstract as abstract
from singa_lite.device.base import Device as Device
from singa_lite.device.cpu import cpu as cpu
from singa_lite.device.cpu import new_cpu as new_cpu
from singa_lite.device.cuda import cuda as cuda
from singa_lite.device.cuda import new_cuda as new_cuda
from singa_lite.tensor import Tensor, find_devices_by

#: What `as_default` was given.
_default: ContextVar[Device | None] = ContextVar("default", default=None)


def default() -> Device:
    """Returns the device used where none is named: `as_default`'s, `SINGA_LITE_DEVICE`'s ("cpu", "cuda:0"), or the CPU.

    >>> device.default() is device.cpu()
    True
    """
    given = _default.get()
    if given is not None:
        return given
    return _named("SINGA_LITE_DEVICE", os.environ.get("SINGA_LITE_DEVICE", "cpu"))


@contextmanager
def as_default(device: Device) -> Iterator[Device]:
    """Makes this device the default within a `with` block, for the thread that enters it. TypeError for what is no
    Device.

    >>> with device.as_default(device.new_cpu(limit=1_000_000)):
    ...     print(tensor.zeros((3,)).device.pool.limit)
    1000000
    """
    if not isinstance(device, Device):
        raise TypeError(f"as_default: wanted a Device, received {device!r:.100}")
    token = _default.set(device)
    try:
        yield device
    finally:
        _default.reset(token)


def get(spec: object = None) -> Device:
    """Returns the device that is named: a Device itself, None for the default one, "cpu" or "cuda:0".

    DeviceError for another text, and for a device that is not there; TypeError for anything else.

    >>> device.get("cpu").name
    'cpu'
    """
    if spec is None:
        return default()
    if isinstance(spec, str):
        return _named("device", spec)
    if not isinstance(spec, Device):
        raise TypeError(f"device: wanted a Device, 'cpu' or 'cuda:<number>', received {spec!r}")
    return spec


def device_of(tensor: Tensor) -> Device:
    """Returns the device that holds the tensor, by its full type: `tensor.device` is typed as what tensors ask of it.

    >>> device.device_of(tensor.zeros((3,))).name
    'cpu'
    """
    device = tensor.device
    if not isinstance(device, Device):
        raise TypeError(f"wanted a tensor on a Device, received one on {device!r}")
    return device


def _named(where: str, wanted: str) -> Device:
    kind, _, index = wanted.partition(":")
    if wanted == "cpu":
        return cpu()
    if kind == "cuda" and (re.fullmatch("[0-9]{1,4}", index) or wanted == "cuda"):
        return cuda(int(index or 0))
    raise DeviceError(f"{where}: wanted 'cpu' or 'cuda:<number>', received {wanted!r}")


find_devices_by(get)
