"""Memory from the system: a segment with its free pieces, and the regions that are cut from it."""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections.abc import Callable
from typing import TypeAlias
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.errors import OverrunError
from singa_lite.common.unique import Unique

ALIGNMENT = 64  # bytes, a cache line and the widest vector; regions start at and fill multiples of it
GUARD_BYTES = 64  # on each side of a region of a checked pool
_GUARD = 0xA5

Bytes: TypeAlias = NDArray[np.uint8]
Piece: TypeAlias = tuple[int, int, int]  # free memory: bytes, number of the segment, offset in it


class Segment:
    """Memory from the system, the shelf for its free pieces, and their sizes by where they start and end."""

    __slots__ = ("number", "memory", "shelf", "starts", "ends")

    def __init__(self, number: int, memory: Bytes, shelf: list[Piece]) -> None:
        self.number = number
        self.memory = memory
        self.shelf = shelf
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def fill_gaps(self, used: list[tuple[int, int]]) -> None:
        """Let all but these, (offset, bytes) in order, be free pieces, instead of those entered so far."""
        self.starts.clear()
        self.ends.clear()
        start = 0
        for offset, nbytes in [*used, (self.memory.size, 0)]:
            if offset > start:
                self.add(offset - start, start)
            start = offset + nbytes

    def add(self, nbytes: int, offset: int) -> None:
        """Enter a free piece."""
        self.starts[offset] = self.ends[offset + nbytes] = nbytes
        insort(self.shelf, (nbytes, self.number, offset))

    def remove(self, nbytes: int, offset: int) -> None:
        """Strike a free piece out."""
        index = bisect_left(self.shelf, (nbytes, self.number, offset))
        del self.shelf[index], self.starts[offset], self.ends[offset + nbytes]


class Region(Unique):
    """What `Pool.take` hands out: `memory`, a uint8 array of `nbytes` bytes, aligned to ALIGNMENT.

    `nbytes` is the size asked for, rounded up to a multiple of ALIGNMENT. Once given back, it is not yours.
    segment, offset, span: where its bytes lie, with its guards. owner: a weak reference to the object that gives the
    region when it dies, None if there is none.
    """

    __slots__ = ("nbytes", "memory", "offset", "owner", "segment", "span")

    def __init__(self, nbytes: int, memory: Bytes, segment: Segment, offset: int, owner: object = None) -> None:
        self.nbytes = nbytes
        self.memory = memory
        self.span = nbytes
        self.owner: Callable[[], object] | None = None if owner is None else ref(owner)
        self.segment = segment
        self.offset = offset

    def guard(self) -> None:
        """Let the first and last bytes be guards, which are no longer its memory."""
        self.memory.fill(_GUARD)
        self.memory = self.memory[GUARD_BYTES:-GUARD_BYTES]
        self.nbytes = self.memory.size

    def check_guards(self) -> None:
        """OverrunError if something wrote to its guards, where it has any."""
        if self.span == self.nbytes:
            return
        whole = self.segment.memory[self.offset : self.offset + self.span]
        for where, guard in (("before", whole[:GUARD_BYTES]), ("behind", whole[-GUARD_BYTES:])):
            count = int(np.count_nonzero(guard != _GUARD))
            if count:
                guard.fill(_GUARD)  # so that an overrun is reported once
                raise OverrunError(
                    f"a region of {self.nbytes} bytes: wanted nothing written {where} it, received {count} bytes"
                )


def aligned_memory(nbytes: int) -> Bytes:
    """New, unwritten memory: `nbytes` of uint8, aligned to ALIGNMENT. MemoryError if there is none."""
    if nbytes > sys.maxsize - ALIGNMENT:
        raise MemoryError(f"wanted {nbytes} bytes, more than an address space holds")
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]
