"""Devices: the CPU, GPUs, and which one serves where none is named."""

from __future__ import annotations

import os
import re

from singa_lite.device.base import Device as Device
from singa_lite.device.cpu import cpu as cpu
from singa_lite.device.cpu import new_cpu as new_cpu
from singa_lite.device.cuda import cuda as cuda
from singa_lite.device.cuda import new_cuda as new_cuda
from singa_lite.errors import DeviceError
from singa_lite.tensor import Tensor, find_devices_by
from singa_lite.threads import set_threads as set_threads
from singa_lite.threads import threads as threads


def default() -> Device:
    """The device used where none is named: `SINGA_LITE_DEVICE` ("cpu", "cuda:0"), else the CPU."""
    return _named("SINGA_LITE_DEVICE", os.environ.get("SINGA_LITE_DEVICE", "cpu"))


def get(spec: object = None) -> Device:
    """The device that is named: a Device itself, None for the default one, "cpu" or "cuda:0".

    DeviceError for another text, and for a device that is not there; TypeError for anything else.
    """
    if spec is None:
        return default()
    if isinstance(spec, str):
        return _named("device", spec)
    if not isinstance(spec, Device):
        raise TypeError(f"device: wanted a Device, 'cpu' or 'cuda:<number>', received {spec!r}")
    return spec


def device_of(tensor: Tensor) -> Device:
    """The device that holds the tensor, by its full type: `tensor.device` is typed as what tensors ask of it."""
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
