"""Compiles the sources by CuPy (NVRTC, to machine code, kept on disk) and launches their kernels by CUDA's driver."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

from singa_lite.common.errors import DeviceError
from singa_lite.kernels.cuda_kernels import source
from singa_lite.kernels.cuda_kernels.routine import Arguments
from singa_lite.kernels.kernel_set import Launch

OPTIONS = ("--std=c++17",)

#: CuPy, or an object of it: it states no types.
Cupy: TypeAlias = Any


class CudaFunction:
    """A kernel of a loaded module. handle: its CUfunction; stream: what it is launched on."""

    def __init__(self, name: str, module: Cupy, handle: int, stream: int) -> None:
        self._name = name
        self._module = module  # unloaded when it dies
        self._handle = handle
        self._stream = stream

    def bind(self, grid: Sequence[int], block: Sequence[int], shared_bytes: int, arguments: Arguments) -> Launch:
        """A launch with these arguments."""
        call, name = _driver().cuLaunchKernel, self._name
        settings = (self._handle, *grid, *block, shared_bytes, self._stream, arguments.pointers, None)

        def launch(kept: object = (self, arguments)) -> None:
            status = call(*settings)
            if status:
                raise DeviceError(f"launching kernel {name!r}: CUDA says {_error(status)}")

        return launch


class CudaLoader:
    """The loader for one GPU, to be called with that as the current one. stream: a CUstream."""

    def __init__(self, cupy: Cupy, stream: int) -> None:
        self._cupy = cupy
        self._stream = stream
        self._modules: dict[tuple[str, tuple[tuple[str, str], ...]], Cupy] = {}

    def function(self, file: str, kernel: str, types: tuple[tuple[str, str], ...]) -> CudaFunction:
        """A kernel of a source, for these types; compiled at the first call for its file and types."""
        key = file, types
        if key not in self._modules:
            self._modules[key] = self._cupy.RawModule(code=source.program(file, dict(types)), options=OPTIONS)
        module = self._modules[key]
        return CudaFunction(kernel, module, module.get_function(kernel).kernel.ptr, self._stream)


@cache
def _driver() -> ctypes.CDLL:
    library = ctypes.CDLL("libcuda.so.1")
    pointer, count = ctypes.c_void_p, ctypes.c_uint
    library.cuLaunchKernel.argtypes = [pointer, *[count] * 7, pointer, pointer, pointer]
    library.cuLaunchKernel.restype = ctypes.c_int
    library.cuGetErrorString.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    return library


def _error(status: int) -> str:
    text = ctypes.c_char_p()
    _driver().cuGetErrorString(status, ctypes.byref(text))
    return f"{status}, {(text.value or b'unknown').decode()}"
