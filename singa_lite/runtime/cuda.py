"""An NVIDIA GPU through CuPy: array views over its memory, one stream for all work, steps replayed as CUDA graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from singa_lite.kernels.kernel_set import Launch
from singa_lite.runtime.adopted import Adopted
from singa_lite.runtime.capture import CapturedReplay, NotCapturable
from singa_lite.runtime.cuda_pool import ALIGNMENT, CudaPool
from singa_lite.runtime.runtime import HostArray
from singa_lite.runtime.staging import Staging


class Cuda:
    """The runtime of GPU number `index`, see `runtime.Runtime`. limit: bytes that its pool may hold.

    stream: a non-blocking `cupy.cuda.Stream`; all work is asked of it, in order.
    """

    alignment = ALIGNMENT
    feed_layout = "image"

    def __init__(self, cupy: Any, index: int, limit: int | None = None) -> None:
        self.index = index
        self._cupy = cupy
        self._device = cupy.cuda.Device(index)
        with self._device:
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.pool = CudaPool(cupy.cuda.MemoryPool(), self.here, self._poison, limit)
            self._staging = Staging(cupy, self.stream, self.pool)
            self._adopted = Adopted(cupy, index, self.stream)

    @contextmanager
    def here(self) -> Iterator[None]:
        """This GPU and its stream are the current ones inside."""
        with self._device, self.stream:
            yield

    def view(self, memory: Any, shape: Sequence[int], dtype: np.dtype[Any], strides: Sequence[int], offset: int) -> Any:
        """CuPy's array; no driver is asked."""
        return self._cupy.ndarray(tuple(shape), dtype, memptr=memory + offset, strides=tuple(strides))

    def part(self, memory: Any, offset: int, nbytes: int) -> Any:
        """A pointer, which knows no end."""
        return memory + offset

    def write(self, array: Any, values: HostArray) -> None:
        """One copy; where the array has gaps, what lies in them is read before."""
        if array.size == 0:
            return
        span = np.empty(_span(array), np.uint8)
        with self.here():
            if array.nbytes < span.nbytes:
                self._download(span, array)
            np.copyto(_shown(span, array), values, casting="same_kind")
            self._upload(array, span)

    @contextmanager
    def staged(self, owner: Any, values: HostArray) -> Iterator[Any]:
        """The values on the GPU, see `Staging.staged`."""
        with self.here(), self._staging.staged(owner, values) as memory:
            yield memory

    def read(self, array: Any) -> HostArray:
        """Waits for all work so far."""
        if array.size == 0:
            return np.empty(array.shape, array.dtype)
        span = np.empty(_span(array), np.uint8)
        with self.here():
            self._download(span, array)
        return np.array(_shown(span, array), order="C")

    def _upload(self, array: Any, span: HostArray) -> None:
        """From memory that is not pinned: CUDA has taken the bytes when the call returns."""
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(array.data.ptr, span.ctypes.data, span.nbytes, runtime.memcpyHostToDevice, self.stream.ptr)

    def _download(self, span: HostArray, array: Any) -> None:
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(span.ctypes.data, array.data.ptr, span.nbytes, runtime.memcpyDeviceToHost, self.stream.ptr)
        self._wait()

    def export(self, keeper: Any, array: Any) -> Any:
        """CuPy's protocols, told of this stream; a reader on another one waits for it."""
        return _Export(self, keeper, array)

    def adopt(self, given: Any) -> tuple[Any, Any] | None:
        """Arrays of this GPU by DLPack, behind the work that made them, see `Adopted`."""
        kind, index = given.__dlpack_device__() if hasattr(given, "__dlpack_device__") else (0, -1)
        if (int(kind), index) != (_DLPACK_CUDA, self.index):
            return None
        with self._device:
            self._adopted.wait_for_owner()  # CuPy's arrays see to it for the current stream, which below is ours
        with self.here():
            array = self._cupy.from_dlpack(given)
        return array.data, array

    def let_go(self, array: Any) -> None:
        """See `Adopted.let_go`."""
        with self._device:
            self._adopted.let_go(array)

    def replay(self, launches: Sequence[Launch], names: Sequence[str]) -> CapturedReplay:
        """One graph launch from the third run on."""
        return CapturedReplay(self.stream, launches, names)

    def refuse_capture(self, why: str) -> None:
        """NotCapturable if the stream is being captured: for launches that wait for the GPU."""
        if self.stream.is_capturing():
            raise NotCapturable(why)

    def synchronize(self) -> None:
        """Wait for the stream."""
        self._wait()

    def _wait(self) -> None:
        self.stream.synchronize()
        self._adopted.drop()

    def _poison(self, memory: Any, nbytes: int) -> None:
        if self.stream.is_capturing():  # a finalizer may come at any time, and its fill would be run at each replay
            return
        with self._device:
            self._cupy.cuda.runtime.memsetAsync(memory.ptr, 0xFF, nbytes, self.stream.ptr)


_DLPACK_CUDA = 2


class _Export:
    """A tensor's array for others. DLPack orders the reader behind the current stream, so this one is made current."""

    def __init__(self, runtime: Cuda, keeper: Any, array: Any) -> None:
        self._runtime = runtime
        self._keeper = keeper
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        with self._runtime.here():
            return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def _span(array: Any) -> int:
    """Bytes from the first element of an array to behind its last."""
    steps = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True))
    return int(steps + array.dtype.itemsize)


def _shown(span: HostArray, array: Any) -> HostArray:
    """The array's elements within a copy of its span."""
    return np.ndarray(array.shape, array.dtype, span, 0, array.strides)
