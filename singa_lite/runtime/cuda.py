"""An NVIDIA GPU through CuPy: array views over its memory, one stream for all work, steps replayed as CUDA graphs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakSet

import numpy as np

from singa_lite.common.array_types import Array, DeviceArray, DType
from singa_lite.kernels.kernel_set import Launch
from singa_lite.runtime.capture import CapturedReplay, NotCapturable
from singa_lite.runtime.cuda_pool import ALIGNMENT, CudaPool
from singa_lite.runtime.cupy_types import Cupy, CupyArray, Event, Pointer, Stream
from singa_lite.runtime.pinned import PinnedMemory
from singa_lite.runtime.runtime import Runtime
from singa_lite.runtime.staging import StagedBatch, Staging


class Guard(Protocol):
    """Waits for a stream in the place of CUDA, which would wait for ever for processes that do not come."""

    def wait(self, stream: Stream) -> None:
        """Until all that was asked of it is done. An error where that cannot be."""


class Cuda(Runtime):
    """The runtime of GPU number `index`, see `runtime.Runtime`. limit: bytes that its pool may hold.

    stream: a non-blocking `cupy.cuda.Stream`; all work is asked of it, in order.
    """

    alignment = ALIGNMENT
    feed_layout = "image"
    is_asynchronous = True
    reads_host = False
    host_link: float | None = 1 / 64  # PCIe 4.0 with 16 lanes beside 1.6 TB/s

    def __init__(self, cupy: Cupy, index: int, limit: int | None = None) -> None:
        self.index = index
        self._cupy = cupy
        #: Asked before the host waits for the stream.
        self.guards: WeakSet[Guard] = WeakSet()
        self._device = cupy.cuda.Device(index)
        with self._device:
            self.stream: Stream = cupy.cuda.Stream(non_blocking=True)
            self.pool = CudaPool(cupy.cuda.MemoryPool(), self.here, self._poison, limit)
            self._staging = Staging(cupy, self.stream, self.pool)
            self._adopted = Adopted(cupy, index, self.stream)

    @property
    def cupy(self) -> Cupy:
        """The module."""
        return self._cupy

    def here(self) -> CurrentDevice:
        """This GPU and its stream are the current ones inside."""
        return CurrentDevice(self._device, self.stream)

    def view(
        self, memory: Pointer, shape: Sequence[int], dtype: DType, strides: Sequence[int], offset: int
    ) -> CupyArray:
        """CuPy's array; the driver is not called."""
        array: CupyArray = self._cupy.ndarray(tuple(shape), dtype, memptr=memory + offset, strides=tuple(strides))
        return array

    def memory_slice(self, memory: Pointer, offset: int, nbytes: int) -> Pointer:
        """A pointer to the first of these bytes; it knows no end."""
        return memory + offset

    def address(self, memory: Pointer) -> int:
        """As the driver has it."""
        return memory.ptr

    def write(self, array: CupyArray, values: Array) -> None:
        """Copies one span of bytes. Where the array has gaps, the bytes in them are read before."""
        if array.size == 0:
            return
        span = np.empty(_span(array), np.uint8)
        with self.here():
            if array.nbytes < span.nbytes:
                self._download(span, array)
            np.copyto(_strided_view(span, array), values, casting="same_kind")
            self._upload(array, span)

    def stage(self, owners: Sequence[object], like: Sequence[Array]) -> StagedBatch:
        """See `Staging.batch`; where this GPU is the current one."""
        return self._staging.batch(owners, like)

    def read(self, array: DeviceArray) -> Array:
        """Waits for all work so far."""
        if array.size == 0:
            return np.empty(array.shape, array.dtype)
        span = np.empty(_span(array), np.uint8)
        with self.here():
            self._download(span, array)
        return np.array(_strided_view(span, array), order="C")

    def _upload(self, array: CupyArray, span: Array) -> None:
        """Copies from memory that is not pinned: CUDA has read the bytes when the call returns."""
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(array.data.ptr, span.ctypes.data, span.nbytes, runtime.memcpyHostToDevice, self.stream.ptr)

    def _download(self, span: Array, array: CupyArray) -> None:
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(span.ctypes.data, array.data.ptr, span.nbytes, runtime.memcpyDeviceToHost, self.stream.ptr)
        self._wait()

    def export(self, keeper: object, array: CupyArray) -> _Export:
        """CuPy's DLPack on this stream; a reader on another stream waits for it."""
        return _Export(self, keeper, array)

    def adopt(self, given: object) -> tuple[Pointer, CupyArray] | None:
        """Takes an array of this GPU by DLPack, ordered behind the work that made it, see `Adopted`."""
        kind, index = given.__dlpack_device__() if hasattr(given, "__dlpack_device__") else (0, -1)
        if (int(kind), index) != (_DLPACK_CUDA, self.index):
            return None
        with self._device:
            self._adopted.wait_for_owner()  # CuPy waits only for its current stream, which below is ours
        with self.here():
            array: CupyArray = self._cupy.from_dlpack(given)
        return array.data, array

    def let_go(self, array: CupyArray) -> None:
        """See `Adopted.let_go`."""
        with self._device:
            self._adopted.let_go(array)

    def host_memory(self, nbytes: int) -> PinnedMemory:
        """Pinned memory of the host."""
        with self.here():
            return PinnedMemory(self._cupy, self.stream, nbytes)

    def replay(self, launches: Sequence[Launch], names: Sequence[str]) -> CapturedReplay:
        """Launches one CUDA graph from the third run on."""
        return CapturedReplay(self.stream, launches, names)

    def refuse_capture(self, why: str) -> None:
        """NotCapturable if the stream is being captured: for launches that wait for the GPU."""
        if self.stream.is_capturing():
            raise NotCapturable(why)

    def synchronize(self) -> None:
        """Waits for the stream."""
        self._wait()

    def _wait(self) -> None:
        for guard in list(self.guards):
            guard.wait(self.stream)
        self.stream.synchronize()
        self._adopted.drop()

    def _poison(self, memory: Pointer, nbytes: int) -> None:
        if self.stream.is_capturing():  # a finalizer may come at any time, and its fill would be run at each replay
            return
        with self._device:
            self._cupy.cuda.runtime.memsetAsync(memory.ptr, 0xFF, nbytes, self.stream.ptr)


class CurrentDevice:
    """A context in which a GPU and a stream are the current ones: entered several times a step, so no generator."""

    __slots__ = ("_device", "_stream")

    def __init__(self, device: Cupy, stream: Stream) -> None:
        self._device = device
        self._stream = stream

    def __enter__(self) -> None:
        self._device.__enter__()
        try:
            self._stream.__enter__()
        except BaseException:
            self._device.__exit__(None, None, None)
            raise

    def __exit__(self, *error: object) -> None:
        try:
            self._stream.__exit__(*error)
        finally:
            self._device.__exit__(*error)


_DLPACK_CUDA = 2


class _Export:
    """A tensor's array for other libraries. DLPack lets a reader wait for the current stream: ours, made current."""

    def __init__(self, runtime: Cuda, keeper: object, array: CupyArray) -> None:
        self._runtime = runtime
        self._keeper = keeper
        self._array = array

    def __dlpack__(self, **options: object) -> object:
        with self._runtime.here():
            return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def _span(array: CupyArray) -> int:
    """Bytes from the start of an array's first element to the end of its last."""
    steps = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True))
    return int(steps + array.dtype.itemsize)


def _strided_view(span: Array, array: CupyArray) -> Array:
    """The array's elements, in a host copy of its span."""
    return np.ndarray(array.shape, array.dtype, span, 0, array.strides)


class Adopted:
    """Arrays of others that the main stream reads. stream: the main one; gpu: its number.

    An owner's work is ordered with ours by the stream that is current in CuPy where the array is handed in: CuPy's own
    owners work on it, and by default it is the one that PyTorch works on as well. An owner on another stream takes no
    part in that; its bytes are safe until they are read if it does not overwrite them, for the array is held.
    """

    def __init__(self, cupy: Cupy, gpu: int, stream: Stream) -> None:
        self._cupy = cupy
        self._gpu = gpu
        self._stream = stream
        self._leaving: list[CupyArray] = []
        self._held: deque[tuple[Event, list[CupyArray]]] = deque()

    def wait_for_owner(self) -> None:
        """Lets the main stream wait for the work that the current one has so far."""
        self._in_order(self._current(), self._stream)

    def let_go(self, array: CupyArray) -> None:
        """Lets the owner wait for the work that reads the array, and holds the array until that is done.

        A finalizer may call this while the stream is being captured; the array is then let go at the next call.
        """
        self.drop()
        self._leaving.append(array)
        if self._stream.is_capturing():
            return
        leaving, self._leaving = self._leaving, []
        self._held.append((self._in_order(self._stream, self._current()), leaving))

    def drop(self) -> None:
        """Forgets the arrays that have been read."""
        while self._held and self._held[0][0].done:
            self._held.popleft()

    def _current(self) -> Stream:
        stream: Stream = self._cupy.cuda.get_current_stream(self._gpu)
        return stream

    def _in_order(self, first: Stream, then: Stream) -> Event:
        """Lets the second stream wait for the work that the first one has so far; returns the event between them."""
        event: Event = self._cupy.cuda.Event(disable_timing=True)
        event.record(first)
        then.wait_event(event)
        return event
