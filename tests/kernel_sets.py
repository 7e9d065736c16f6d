"""The kernel sets of this machine, for tests that run over all of them."""

from __future__ import annotations

from singa_lite.errors import DeviceError
from singa_lite.kernels.choice import cpu_kernels
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY


def kernel_sets() -> list[KernelSet]:
    """The reference set first."""
    try:
        return [NUMPY, cpu_kernels("onednn")]
    except DeviceError:  # no library: tests of the choice say why, the others run over what there is
        return [NUMPY]
