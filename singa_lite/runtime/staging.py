"""Staging: batches on their way to the GPU on a stream of their own, while the step before still runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from singa_lite.runtime.runtime import HostArray, MemoryPool


class Slot:
    """Pinned host bytes and GPU bytes that batches of one form pass through.

    copied: recorded on the side stream when the pinned bytes are free again; consumed: on the main one when the GPU's
    are.
    """

    def __init__(self, cupy: Any, pool: MemoryPool, nbytes: int) -> None:
        self.pinned = cupy.cuda.alloc_pinned_memory(nbytes)
        self.region = pool.take(nbytes)
        self.copied = cupy.cuda.Event(disable_timing=True)
        self.consumed = cupy.cuda.Event(disable_timing=True)


class Staging:
    """The slots of one GPU, one for each tensor that is fed. stream: the main one; pool: where their bytes are from."""

    def __init__(self, cupy: Any, stream: Any, pool: MemoryPool) -> None:
        self._cupy = cupy
        self._stream = stream
        self._side = cupy.cuda.Stream(non_blocking=True)
        self._pool = pool
        self._slots: dict[tuple[int, int], Slot] = {}

    @contextmanager
    def staged(self, target: int, values: HostArray) -> Iterator[Any]:
        """The GPU's memory with the values in C order, valid for work asked of the main stream inside.

        target: address of what is fed. Host values are read before this returns; the copy waits for no running step.
        """
        key = target, values.nbytes
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = Slot(self._cupy, self._pool, values.nbytes)
        slot.copied.synchronize()  # the copy of the batch before has left the pinned bytes
        pinned = np.frombuffer(slot.pinned, values.dtype, values.size).reshape(values.shape)
        np.copyto(pinned, values)
        self._side.wait_event(slot.consumed)
        runtime = self._cupy.cuda.runtime
        address, nbytes = slot.region.memory.ptr, values.nbytes
        runtime.memcpyAsync(address, pinned.ctypes.data, nbytes, runtime.memcpyHostToDevice, self._side.ptr)
        slot.copied.record(self._side)
        self._stream.wait_event(slot.copied)
        yield slot.region.memory
        slot.consumed.record(self._stream)

    def release(self) -> None:
        """Give the GPU's bytes back."""
        self._side.synchronize()
        for slot in self._slots.values():
            self._pool.give(slot.region)
        self._slots.clear()
