"""Arrays between poisoned bytes: the address sanitizer reports whatever is read or written beside them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

#: Bytes before the first element of an array that shall not lie at a multiple of 16; what can be poisoned at least.
SHIFT = 8


class ExactMemory:
    """Memory for arrays, each from malloc of its own, to the byte. Wants the sanitizer's malloc in the process."""

    def __init__(self) -> None:
        process = ctypes.CDLL(None)
        self._malloc, self._free = process["malloc"], process["free"]
        self._malloc.restype, self._malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self._free.argtypes = [ctypes.c_void_p]
        self._poison, self._heal = process["__asan_poison_memory_region"], process["__asan_unpoison_memory_region"]
        self._poison.argtypes = self._heal.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._given: list[int] = []

    def array(
        self, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...], shifted: bool = False
    ) -> np.ndarray:
        """An array whose last element ends where its memory ends; shifted: no multiple of 16 bytes is its address."""
        span = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + dtype.itemsize
        before = SHIFT if shifted else 0
        address = self._malloc(before + span)
        self._given.append(address)
        self._poison(address, before)
        held = (ctypes.c_char * span).from_address(address + before)
        return np.ndarray(shape, dtype, held, 0, strides)

    def nothing(self, nbytes: int) -> np.ndarray:
        made = self.array((nbytes,), np.dtype(np.uint8), (1,)) if nbytes else np.empty(0, np.uint8)
        made.fill(0xFF)
        return made

    def free(self) -> None:
        """Give all of it back: arrays made here must not be used any more."""
        for address in self._given:
            self._heal(address, SHIFT)
            self._free(address)
        self._given.clear()


@contextmanager
def exact_memory() -> Iterator[ExactMemory]:
    """Memory that is given back in the end."""
    memory = ExactMemory()
    try:
        yield memory
    finally:
        memory.free()
