"""The devices that tests of the CUDA code run on: the stand-in on the host, and a GPU where there is one.

SINGA_LITE_TEST_GPU=stand-in: the stand-in takes the GPU's place as well, to prove the tests that are marked `gpu`.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from host_loader import missing_to_run
from singa_lite import device
from singa_lite.device import Device
from singa_lite.errors import DeviceError

KINDS = ("stand-in", pytest.param("gpu", marks=pytest.mark.gpu))
#: Whether the stand-in takes the GPU's place.
STANDS_IN = os.environ.get("SINGA_LITE_TEST_GPU") == "stand-in"


def new_device(kind: str, limit: int | None = None, **options: Any) -> Device:
    """A device of that kind with a pool of its own; where it cannot be had, the test is skipped and says why.

    limit: bytes of its pool; options: as `device.new_cuda` has them.
    """
    if kind == "gpu" and not STANDS_IN:
        try:
            return device.new_cuda(0, limit, **options)
        except DeviceError as error:
            pytest.skip(str(error))
    if missing_to_run():
        pytest.skip(f"the CUDA kernels on the host want {missing_to_run()}")
    from host_device import host_cuda

    return host_cuda(limit, **options)


def needs_a_gpu(why: str) -> None:
    """Skip the rest of a test marked `gpu` where the stand-in takes the GPU's place."""
    if STANDS_IN:
        pytest.skip(f"the stand-in has {why}")
