"""The CPU: NumPy arrays over bytes of the pool; everything is done at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from singa_lite.common import pages
from singa_lite.common.array_types import Array, DType
from singa_lite.kernels.kernel_set import Launch
from singa_lite.runtime.runtime import Runtime

#: As many as results of a step have, that are numbers.
FEW_BYTES = 4096

Memory = NDArray[np.uint8]


class Host(Runtime):
    """The runtime of CPUs, see `runtime.Runtime`."""

    alignment = 64  # a cache line, and the widest vector register
    feed_layout = ""
    is_asynchronous = False
    reads_host = True
    host_link: float | None = None

    def view(self, memory: Memory, shape: Sequence[int], dtype: DType, strides: Sequence[int], offset: int) -> Array:
        """NumPy's array over the bytes."""
        return np.ndarray(shape, dtype, memory, offset, strides)

    def memory_slice(self, memory: Memory, offset: int, nbytes: int) -> Memory:
        """A slice of the array of bytes."""
        return memory[offset : offset + nbytes]

    def drop(self, memory: Memory) -> None:
        """By `pages.drop`."""
        pages.drop(memory.ctypes.data, memory.nbytes)

    def write(self, array: Array, values: Array) -> None:
        """Copies at once, a few channels that lie innermost one by one: NumPy copies as many elements in a row."""
        if array.ndim == 4 and array.shape[1] < array.shape[3] and array.strides[1] < array.strides[3]:
            for channel in range(array.shape[1]):
                np.copyto(array[:, channel], values[:, channel], casting="same_kind")
            return
        np.copyto(array, values, casting="same_kind")

    def copies(self, source: Array, target: Array) -> bool:
        """Few bytes by NumPy itself; more are left to the kernel, which may use all cores."""
        if target.nbytes > FEW_BYTES:
            return False
        np.copyto(target, source)
        return True

    def read(self, array: Array) -> Array:
        """A copy in C order."""
        return np.array(array, order="C")

    def export(self, keeper: object, array: Array) -> Array:
        """A NumPy array, which has NumPy's own DLPack."""
        return np.asarray(_Export(keeper, array))

    def host_memory(self, nbytes: int) -> NoReturn:
        """NotImplementedError: values are not offloaded, as a budget bounds the host's own memory."""
        raise NotImplementedError("host memory beside a CPU's own")

    def replay(self, launches: Sequence[Launch], names: Sequence[str]) -> _Loop:
        """A loop over the launches."""
        return _Loop(tuple(launches))

    def here(self) -> AbstractContextManager[object]:
        """NumPy is silent about infinities and NaN inside: kernels may give them, and `on_nan` looks for them."""
        return np.errstate(all="ignore")


class _Loop:
    """A `runtime.Replay` one launch after the other."""

    __slots__ = ("_launches",)

    def __init__(self, launches: tuple[Launch, ...]) -> None:
        self._launches = launches

    def __call__(self) -> None:
        for launch in self._launches:
            launch()

    def pausing(self, index: int, wait: Callable[[], object]) -> None:
        """See `runtime.Replay`."""
        for launch in self._launches[:index]:
            launch()
        wait()
        for launch in self._launches[index:]:
            launch()


class _Export:
    """Holds a tensor for as long as NumPy holds an array over its bytes."""

    def __init__(self, keeper: object, array: Array) -> None:
        self.keeper = keeper
        self.__array_interface__ = array.__array_interface__
