"""Staging: batches on their way to the GPU on a stream of their own, while the step before still runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, finalize

import numpy as np

from singa_lite.runtime.runtime import HostArray, MemoryPool


class Slot:
    """Pinned host bytes and GPU bytes that the batches of one tensor pass through. owner: with which the slot ends.

    copied: recorded on the side stream when the pinned bytes are free again; consumed: on the main one when the GPU's
    are. They are from the main stream's pool, so it may still have work to do with what lay there before.
    """

    def __init__(self, cupy: Any, pool: MemoryPool, stream: Any, owner: Any, nbytes: int) -> None:
        self.nbytes = nbytes
        self.pinned = cupy.cuda.alloc_pinned_memory(nbytes)
        self.copied = cupy.cuda.Event(disable_timing=True)
        self.consumed = cupy.cuda.Event(disable_timing=True)
        self.region = pool.take(nbytes)
        self.consumed.record(stream)
        self._pool = pool
        self.end = finalize(owner, self._end)
        self.end.atexit = False  # the process takes all of it along

    def _end(self) -> None:
        """Give the bytes back, once nothing writes to them. What still reads the GPU's is before whatever gets them."""
        self.copied.synchronize()
        self._pool.give(self.region)


class Staging:
    """The slots of one GPU, one for each block that is fed. stream: the main one; pool: where their bytes are from."""

    def __init__(self, cupy: Any, stream: Any, pool: MemoryPool) -> None:
        self._cupy = cupy
        self._stream = stream
        self._side = cupy.cuda.Stream(non_blocking=True)
        self._pool = pool
        self._slots: WeakKeyDictionary[Any, Slot] = WeakKeyDictionary()

    @contextmanager
    def staged(self, owner: Any, values: HostArray) -> Iterator[Any]:
        """The GPU's memory with the values in C order, valid for work asked of the main stream inside.

        owner: the block that is fed. Host values are read before this returns; the copy waits for no running step.
        """
        slot = self._slot(owner, values.nbytes)
        slot.copied.synchronize()  # the copy of the batch before has left the pinned bytes
        pinned = np.frombuffer(slot.pinned, values.dtype, values.size).reshape(values.shape)
        np.copyto(pinned, values)
        self._side.wait_event(slot.consumed)
        runtime = self._cupy.cuda.runtime
        address, nbytes = slot.region.memory.ptr, values.nbytes
        runtime.memcpyAsync(address, pinned.ctypes.data, nbytes, runtime.memcpyHostToDevice, self._side.ptr)
        slot.copied.record(self._side)
        self._stream.wait_event(slot.copied)
        try:
            yield slot.region.memory
        finally:
            slot.consumed.record(self._stream)

    def _slot(self, owner: Any, nbytes: int) -> Slot:
        """The block's, a new one where that is too small."""
        slot = self._slots.get(owner)
        if slot is None or slot.nbytes < nbytes:
            if slot is not None:
                del self._slots[owner]
                slot.end()
            slot = self._slots[owner] = Slot(self._cupy, self._pool, self._stream, owner, nbytes)
        return slot
