"""Staging: batches are copied to the GPU on a stream of their own, while the step before still runs."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary, finalize

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.runtime.cuda_pool import ALIGNMENT, CudaPool
from singa_lite.runtime.cupy_types import Cupy, Event, Stream


class Slot:
    """Pinned host bytes and GPU bytes that batches pass through: the arrays of one tensor, or of several at a time. It
    ends when the last of its owners dies.

    stream, side: where the batch is used, and where it is copied. copied: recorded on the side stream when the pinned
    bytes are free again; consumed: recorded on the main stream when the GPU's bytes are. These come from the main
    stream's pool, so work of it may still use what lay there before.
    """

    def __init__(
        self, cupy: Cupy, pool: CudaPool, stream: Stream, side: Stream, owners: Sequence[object], nbytes: int
    ) -> None:
        self.nbytes = nbytes
        self.pinned = cupy.cuda.alloc_pinned_memory(nbytes)
        self.copied: Event = cupy.cuda.Event(disable_timing=True)
        self.consumed: Event = cupy.cuda.Event(disable_timing=True)
        self.region = pool.take(nbytes)
        self.consumed.record(stream)
        self.stream, self.side = stream, side
        self.runtime = cupy.cuda.runtime
        self._pool = pool
        self._owners = len(owners)
        self._ends = [finalize(owner, self._owner_died) for owner in owners]
        for each in self._ends:
            each.atexit = False  # all memory goes with the process

    def end(self) -> None:
        """It is not used any more, whether its owners live or not."""
        for each in self._ends:
            if each.detach() is not None:
                self._owner_died()

    def _owner_died(self) -> None:
        """Gives the bytes back once nothing writes to them. Whatever gets the GPU's comes behind what reads them."""
        self._owners -= 1
        if not self._owners:
            self.copied.synchronize()
            self._pool.give(self.region)


class StagedBatch:
    """How batches of one form pass through a slot: one array behind the other, all of them in one copy.

    memories: where the GPU has each array, in C order. like: arrays of that form.
    """

    def __init__(self, slot: Slot, like: Sequence[Array]) -> None:
        places, _ = _places(like)
        self._nbytes = places[-1] + like[-1].nbytes
        pinned = np.frombuffer(slot.pinned, np.uint8, self._nbytes)
        self._pinned = [
            pinned[at : at + values.nbytes].view(values.dtype).reshape(values.shape)
            for at, values in zip(places, like, strict=True)
        ]
        self.memories = [slot.region.pointer + at for at in places]
        self._slot, self._source, self._target = slot, pinned.ctypes.data, slot.region.pointer.ptr
        self._runtime, self._kind = slot.runtime, slot.runtime.memcpyHostToDevice

    def begin(self, batch: Sequence[Array]) -> None:
        """Copies it to the GPU in C order, where the main stream finds it; the copy waits for no running step."""
        slot = self._slot
        slot.copied.synchronize()  # the copy of the batch before has left the pinned bytes
        for pinned, values in zip(self._pinned, batch, strict=True):
            np.copyto(pinned, values)
        slot.side.wait_event(slot.consumed)
        self._runtime.memcpyAsync(self._target, self._source, self._nbytes, self._kind, slot.side.ptr)
        slot.copied.record(slot.side)
        slot.stream.wait_event(slot.copied)

    def end(self) -> None:
        """The GPU's bytes are free behind all that the main stream was asked for."""
        self._slot.consumed.record(self._slot.stream)


class Staging:
    """The slots of one GPU, by the blocks that are fed. stream: the main one; pool: their bytes come from it."""

    def __init__(self, cupy: Cupy, stream: Stream, pool: CudaPool) -> None:
        self._cupy = cupy
        self._stream = stream
        self._side: Stream = cupy.cuda.Stream(non_blocking=True)
        self._pool = pool
        self._slots: WeakKeyDictionary[object, Slot] = WeakKeyDictionary()

    def batch(self, owners: Sequence[object], like: Sequence[Array]) -> StagedBatch:
        """How batches of this form pass, one array for each of these blocks; new bytes where theirs are too few."""
        nbytes = _places(like)[1]
        slots = {id(slot): slot for slot in map(self._slots.get, owners) if slot is not None}
        slot = next(iter(slots.values()), None)
        if slot is None or len(slots) > 1 or slot.nbytes < nbytes:
            for owner in [owner for owner, used in self._slots.items() if id(used) in slots]:
                del self._slots[owner]
            for old in slots.values():
                old.end()
            slot = Slot(self._cupy, self._pool, self._stream, self._side, owners, nbytes)
            self._slots.update(dict.fromkeys(owners, slot))
        return StagedBatch(slot, like)


def _places(like: Sequence[Array]) -> tuple[list[int], int]:
    """Where each array begins in the bytes of all, and how many these are."""
    places, end = [], 0
    for values in like:
        places.append(end)
        end += -(-values.nbytes // ALIGNMENT) * ALIGNMENT
    return places, end
