"""The CUDA kernel set compiled for the host, over NumPy arrays: what the contract tests run."""

from __future__ import annotations

from typing import Any

import numpy as np

from call_steps import own_set
from host_device import HostCuda
from host_libraries import HostMultiplier, convolutions, served
from host_libraries import missing as missing_cudnn
from host_loader import PLAIN, Build, HostLoader
from singa_lite.device.host_fallback import by_way_of_host
from singa_lite.kernels.cuda_kernels import cuda
from singa_lite.kernels.cuda_kernels.libraries.products import Products
from singa_lite.kernels.kernel_set import KernelSet, Launch, Settings, specs_of
from singa_lite.kernels.numpy_kernels import NUMPY


def on_host(array: np.ndarray | None) -> Any:
    """The CuPy array over a NumPy array's memory; no driver is asked."""
    if array is None:
        return None
    import cupy

    memory = cupy.cuda.UnownedMemory(array.ctypes.data, max(array.nbytes, 1), array, 0)
    return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0), strides=array.strides)


class OverNumPy(KernelSet):
    """A CUDA kernel set whose arrays are NumPy's."""

    def prepare(self, name: str, arrays: tuple[Any, ...], scratch: Any, settings: Settings) -> Launch:
        """Bind the kernel to the arrays' memory, which the launch keeps alive."""
        shown = tuple(on_host(array) for array in arrays)
        launch = self.choose(name, specs_of(arrays), settings).prepare(shown, on_host(scratch), settings)
        return lambda kept=(shown, arrays, scratch): launch()


def cuda_on_host(build: Build = PLAIN) -> OverNumPy:
    """Our own kernels, over products that NumPy does, with no set to fall back on. build: how they are compiled."""
    made = cuda(HostLoader(build), None, *served(Products(HostMultiplier()), None))
    shown, own = over_numpy("cuda", made), own_set(made)
    shown.kernels, shown.joins = own.kernels | made.kernels, own.joins
    return shown


def cuda_with_libraries_on_host() -> OverNumPy:
    """The kernels of the libraries, done by NumPy from what the libraries would be told, over our own and NumPy's."""
    made = None if missing_cudnn() else convolutions()  # `test_cuda_convolution_plans` says so
    below = by_way_of_host(NUMPY, HostCuda())
    return over_numpy("cuda-libraries", cuda(HostLoader(), below, *served(Products(HostMultiplier()), made)))


def over_numpy(name: str, made: KernelSet) -> OverNumPy:
    """The set's kernels over NumPy's arrays."""
    shown = OverNumPy(name, made.kernels, made.fallback, made.layouts, made.fusions, made.strides_matter)
    shown.joins = made.joins
    return shown
