"""The kernel sets of this machine, for tests that run over all of them."""

from __future__ import annotations

from functools import cache

from singa_lite.errors import DeviceError
from singa_lite.kernels.choice import cpu_kernels
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY


def kernel_sets() -> list[KernelSet]:
    """The sets that a device for CPUs may be given, the reference set first."""
    try:
        return [NUMPY, cpu_kernels("onednn")]
    except DeviceError:  # no library: tests of the choice say why, the others run over what there is
        return [NUMPY]


def sets_of_a_chain() -> list[KernelSet]:
    """The same, and each set that one of them has below it: the loops."""
    found = kernel_sets()
    while (below := found[1].fallback if len(found) > 1 else None) and below.name != NUMPY.name:
        found.insert(1, below)
    return found


#: Names of CUDA sets that have neither cuDNN before them nor the host behind them.
WITHOUT_CUDNN = ("cuda", "gpu-own")


def is_left(key: str) -> bool:
    """Whether the sets of WITHOUT_CUDNN leave a case to cuDNN or the host."""
    kernel, _, kind = key.partition(":")
    return (kernel.startswith("conv2d") and not kind.startswith("depthwise")) or key == "linear:no_bias tanh"


def leaves(kernels: KernelSet, key: str) -> bool:
    """Whether the set is among WITHOUT_CUDNN, and leaves the case."""
    return kernels.name in WITHOUT_CUDNN and is_left(key)


@cache
def cuda_sets() -> list[KernelSet]:
    """The CUDA kernels compiled for the host, alone and with the libraries' kernels before them.

    None where what that wants is missing, which `test_cuda_values` says; and those of a GPU, where there is one.
    """
    from gpu_kernels import on_gpu
    from host_loader import missing_to_run

    if missing_to_run():
        return on_gpu()
    from host_kernels import cuda_on_host, cuda_with_libraries_on_host

    return [cuda_on_host(), cuda_with_libraries_on_host(), *on_gpu()]
