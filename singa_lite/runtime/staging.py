"""Staging: batches are copied to the GPU on a stream of their own, while the step before still runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary, finalize

import numpy as np

from singa_lite.array_types import Array
from singa_lite.runtime.cuda_pool import CudaPool
from singa_lite.runtime.cupy_types import Cupy, Event, Pointer, Stream


class Slot:
    """Pinned host bytes and GPU bytes that the batches of one tensor pass through. The slot ends when its owner dies.

    stream, side: where the batch is used, and where it is copied. copied: recorded on the side stream when the pinned
    bytes are free again; consumed: recorded on the main stream when the GPU's bytes are. These come from the main
    stream's pool, so work of it may still use what lay there before.
    """

    def __init__(self, cupy: Cupy, pool: CudaPool, stream: Stream, side: Stream, owner: object, nbytes: int) -> None:
        self.nbytes = nbytes
        self.pinned = cupy.cuda.alloc_pinned_memory(nbytes)
        self.copied: Event = cupy.cuda.Event(disable_timing=True)
        self.consumed: Event = cupy.cuda.Event(disable_timing=True)
        self.region = pool.take(nbytes)
        self.consumed.record(stream)
        self._stream, self._side = stream, side
        self._runtime, self._kind = cupy.cuda.runtime, cupy.cuda.runtime.memcpyHostToDevice
        self._pool = pool
        self._shown: tuple[Array, int] | None = None
        self.end_of_use = finalize(owner, self._end)
        self.end_of_use.atexit = False  # all memory goes with the process

    @property
    def memory(self) -> Pointer:
        """The GPU's bytes."""
        return self.region.pointer

    def begin(self, values: Array) -> None:
        """Copies them to the GPU in C order, where the main stream finds them; the copy waits for no running step."""
        self.copied.synchronize()  # the copy of the batch before has left the pinned bytes
        pinned, address = self._shown_as(values)
        np.copyto(pinned, values)
        self._side.wait_event(self.consumed)
        self._runtime.memcpyAsync(self.region.pointer.ptr, address, values.nbytes, self._kind, self._side.ptr)
        self.copied.record(self._side)
        self._stream.wait_event(self.copied)

    def end(self) -> None:
        """The GPU's bytes are free behind all that the main stream was asked for."""
        self.consumed.record(self._stream)

    def _shown_as(self, values: Array) -> tuple[Array, int]:
        """The pinned bytes as an array for these values, the same one for batches of one form, and their address."""
        if self._shown is not None:
            shown = self._shown[0]
            if shown.shape == values.shape and shown.dtype == values.dtype:
                return self._shown
        shown = np.frombuffer(self.pinned, values.dtype, values.size).reshape(values.shape)
        self._shown = shown, shown.ctypes.data
        return self._shown

    def _end(self) -> None:
        """Gives the bytes back once nothing writes to them. Whatever gets the GPU's comes behind what reads them."""
        self.copied.synchronize()
        self._pool.give(self.region)


class Staging:
    """The slots of one GPU, one for each block that is fed. stream: the main one; pool: their bytes come from it."""

    def __init__(self, cupy: Cupy, stream: Stream, pool: CudaPool) -> None:
        self._cupy = cupy
        self._stream = stream
        self._side: Stream = cupy.cuda.Stream(non_blocking=True)
        self._pool = pool
        self._slots: WeakKeyDictionary[object, Slot] = WeakKeyDictionary()

    @contextmanager
    def staged(self, owner: object, values: Array) -> Iterator[Pointer]:
        """The GPU's memory with the values in C order, valid for work asked of the main stream inside.

        owner: the block that is fed. Host values are read before this returns.
        """
        slot = self.slot(owner, values.nbytes)
        slot.begin(values)
        try:
            yield slot.memory
        finally:
            slot.end()

    def slot(self, owner: object, nbytes: int) -> Slot:
        """The block's slot; a new one where that is too small."""
        slot = self._slots.get(owner)
        if slot is None or slot.nbytes < nbytes:
            if slot is not None:
                del self._slots[owner]
                slot.end_of_use()
            slot = self._slots[owner] = Slot(self._cupy, self._pool, self._stream, self._side, owner, nbytes)
        return slot
