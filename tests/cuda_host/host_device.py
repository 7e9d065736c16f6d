"""A stand-in for a GPU: the CUDA device, executor and kernels over one span of host memory, captures included."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, finalize

import numpy as np

from host_libraries import HostMultiplier, convolutions, served
from host_libraries import missing as missing_cudnn
from host_loader import HostLoader
from singa_lite.device import Device
from singa_lite.device.cuda_libraries import GpuTrial
from singa_lite.device.host_fallback import by_way_of_host
from singa_lite.kernels.cuda_kernels import cuda
from singa_lite.kernels.cuda_kernels.libraries.products import Products
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.runtime.cuda import Cuda
from singa_lite.runtime.pinned import Copying
from singa_lite.runtime.pool import Pool

_numbers = count()


class HostGraph:
    """Launches that a capture noted."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = tuple(launches)

    def launch(self, stream: HostStream) -> None:
        stream.graph_launches += 1
        for launch in self.launches:
            launch()


class HostStream:
    """Does what is asked of it at once, or notes it while capturing. eager: launches done one by one so far."""

    def __init__(self) -> None:
        self.eager = self.graph_launches = 0
        self._noted: list[Launch] | None = None

    def submit(self, launch: Launch) -> None:
        if self._noted is not None:
            self._noted.append(launch)
            return
        self.eager += 1
        launch()

    def begin_capture(self) -> None:
        if self._noted is not None:
            raise RuntimeError("this stream is being captured")
        self._noted = []

    def end_capture(self) -> HostGraph:
        noted, self._noted = self._noted, None
        return HostGraph(noted or ())

    def is_capturing(self) -> bool:
        return self._noted is not None


class HostStage:
    """Where a batch is at once."""

    def __init__(self, memories: list[np.ndarray]) -> None:
        self.memories = memories

    def begin(self, batch: Sequence[np.ndarray]) -> None:
        for memory, values in zip(self.memories, batch, strict=True):
            np.copyto(memory.view(values.dtype).reshape(values.shape), values)

    def end(self) -> None:
        """It has been read by then."""


class HostCuda(Cuda):
    """The CUDA runtime without CUDA: its arrays are CuPy's over host memory, copies are copies on the host."""

    def __init__(self, limit: int | None = None) -> None:
        import cupy

        self.index = 0
        self._cupy = cupy
        self.stream = HostStream()
        self.pool = Pool(limit)
        self._staging: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def here(self) -> AbstractContextManager[None]:
        return nullcontext()

    def memory_slice(self, memory: Any, offset: int, nbytes: int) -> Any:
        """A slice: the memory is the host's."""
        return memory[offset : offset + nbytes]

    def address(self, memory: Any) -> int:
        return memory.ctypes.data

    def view(self, memory: Any, shape: Sequence[int], dtype: np.dtype[Any], strides: Sequence[int], offset: int) -> Any:
        """CuPy's array over host memory that it does not own."""
        owner = self._cupy.cuda.UnownedMemory(memory.ctypes.data, memory.nbytes, memory, 0)
        return super().view(self._cupy.cuda.MemoryPointer(owner, 0), shape, dtype, strides, offset)

    def stage(self, owners: Sequence[Any], like: Sequence[np.ndarray]) -> HostStage:
        """Memory of the pool, kept for the next batch of its owner, as a slot of the real one."""
        memories = []
        for owner, values in zip(owners, like, strict=True):
            region = self._staging.get(owner)
            if region is None or region.nbytes < values.nbytes:
                region = self._staging[owner] = self.pool.take(values.nbytes)
                finalize(owner, self.pool.give, region).atexit = False
            memories.append(region.memory[: values.nbytes])
        return HostStage(memories)

    def host_memory(self, nbytes: int) -> TwiceCopied:
        return TwiceCopied(self.stream, nbytes)

    def _upload(self, array: Any, span: np.ndarray) -> None:
        ctypes.memmove(array.data.ptr, span.ctypes.data, span.nbytes)

    def _download(self, span: np.ndarray, array: Any) -> None:
        ctypes.memmove(span.ctypes.data, array.data.ptr, span.nbytes)

    def synchronize(self) -> None:
        """All is done."""

    def let_go(self, array: Any) -> None:
        """All is done."""


class TwiceCopied:
    """Host memory whose copies are done when they begin, and once more when they end: what changes between shows."""

    def __init__(self, stream: HostStream, nbytes: int) -> None:
        self.nbytes = nbytes
        self._stream = stream
        self._bytes = np.full(nbytes, 0xFF, np.uint8)

    def out(self, array: Any, offset: int) -> Copying:
        return self._copying(self._bytes[offset:].ctypes.data, array.data.ptr, array.nbytes)

    def back(self, array: Any, offset: int) -> Copying:
        return self._copying(array.data.ptr, self._bytes[offset:].ctypes.data, array.nbytes)

    def _copying(self, target: int, source: int, nbytes: int) -> Copying:
        def submit() -> None:
            self._stream.submit(lambda: ctypes.memmove(target, source, nbytes))

        return Copying(submit, submit)

    def settle(self) -> None:
        """All is done."""


class StreamLoader(HostLoader):
    """A loader whose launches go through a stream."""

    def __init__(self, stream: HostStream) -> None:
        super().__init__()
        self.stream = stream

    def function(self, file: str, kernel: str, types: tuple[tuple[str, str], ...]) -> Any:
        return _Submitted(super().function(file, kernel, types), self.stream)


class _Submitted:
    """What binds launches (a kernel, a stand-in for a library), with its launches going through a stream."""

    def __init__(self, bound: Any, stream: HostStream) -> None:
        self.bound = bound
        self.stream = stream

    def bind(self, *arguments: Any) -> Launch:
        launch = self.bound.bind(*arguments)
        return lambda: self.stream.submit(launch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bound, name)


def host_cuda(
    limit: int | None = None, checked: bool = False, libraries: bool = True, channels_last: bool = True
) -> Device:
    """A device whose kernels are the CUDA ones compiled for the host. limit: bytes that its pool may hold.

    libraries: NumPy in the place of cuBLASLt and cuDNN, told what those would be told; else they are missing.
    channels_last: as of `device.new_cuda`.
    """
    runtime = HostCuda(limit)
    runtime.pool.checked = checked
    loader, below = StreamLoader(runtime.stream), by_way_of_host(NUMPY, runtime)

    def made(**knobs: Any) -> KernelSet:
        builders, fusions = _libraries(runtime, **knobs) if libraries else ([], [])
        return cuda(loader, below, builders, fusions, channels_last)

    kernels = made()
    if libraries:
        kernels.in_tf32 = cache(lambda: made(allow_tf32=True))
    return Device(f"cuda on host #{next(_numbers)}", kernels, runtime.pool, runtime)


def _libraries(runtime: HostCuda, **knobs: Any) -> tuple[list[Any], list[tuple[str, str]]]:
    stream, trial = runtime.stream, GpuTrial(runtime)
    products = Products(_Submitted(HostMultiplier(), stream), knobs.get("allow_tf32", False), trial)
    made = None if missing_cudnn() else convolutions(trial, **knobs)
    if made is not None:
        made.planner.executor = _Submitted(made.planner.executor, stream)
    return served(products, made)
