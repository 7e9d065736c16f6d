"""The CUDA kernel set compiled for the host, over NumPy arrays: what the contract tests run."""

from __future__ import annotations

from typing import Any

import numpy as np

from host_libraries import HostMultiplier, convolutions, served
from host_libraries import missing as missing_cudnn
from host_loader import PLAIN, Build, HostLoader
from singa_lite.kernels.cuda_kernels import cuda
from singa_lite.kernels.cuda_kernels.libraries.products import Products
from singa_lite.kernels.kernel_set import FunctionKernel, KernelSet, Launch, Settings, specs_of
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
        """Bind the kernel to the arrays' memory, which the launch keeps alive; one of NumPy's to the arrays."""
        kernel = self.choose(name, specs_of(arrays), settings)
        if isinstance(kernel, FunctionKernel):
            return kernel.prepare(arrays, scratch, settings)
        shown = tuple(on_host(array) for array in arrays)
        launch = kernel.prepare(shown, on_host(scratch), settings)
        return lambda kept=(shown, arrays, scratch): launch()


def cuda_on_host(build: Build = PLAIN) -> OverNumPy:
    """The set's own kernels, without a set to fall back on. build: how they are compiled."""
    return over_numpy("cuda", cuda(HostLoader(build)))


def cuda_with_libraries_on_host() -> OverNumPy:
    """The kernels of the libraries, done by NumPy from what the libraries would be told, over our own and NumPy's."""
    made = None if missing_cudnn() else convolutions()  # `test_cuda_convolution_plans` says so
    return over_numpy("cuda-libraries", cuda(HostLoader(), NUMPY, *served(Products(HostMultiplier()), made)))


def over_numpy(name: str, made: KernelSet) -> OverNumPy:
    """The set's kernels over NumPy's arrays."""
    shown = OverNumPy(name, made.kernels, made.fallback, made.layouts, made.fusions, made.strides_matter)
    shown.joins = made.joins
    return shown
