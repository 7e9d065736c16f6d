"""Devices: the CPU, GPUs, and which one serves where none is named."""

from __future__ import annotations

import os

from singa_lite.device.base import Device as Device
from singa_lite.device.cpu import cpu as cpu
from singa_lite.device.cpu import new_cpu as new_cpu
from singa_lite.device.cuda import cuda as cuda
from singa_lite.device.cuda import new_cuda as new_cuda
from singa_lite.errors import DeviceError
from singa_lite.tensor import lend
from singa_lite.threads import set_threads as set_threads
from singa_lite.threads import threads as threads


def default() -> Device:
    """The device used where none is named: `SINGA_LITE_DEVICE` ("cpu", "cuda:0"), else the CPU."""
    wanted = os.environ.get("SINGA_LITE_DEVICE", "cpu")
    kind, _, index = wanted.partition(":")
    if kind == "cpu" and not index:
        return cpu()
    if kind == "cuda" and (index.isdigit() or not index):
        return cuda(int(index or 0))
    raise DeviceError(f"SINGA_LITE_DEVICE: wanted 'cpu' or 'cuda:<number>', received {wanted!r}")


lend(default_device=default)
