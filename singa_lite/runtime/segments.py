"""Segments: memory that a pool holds from the system, free pieces in it, the regions cut from it, and the numbers."""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections import deque
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
#: Of a segment that small requests share.
SEGMENT_BYTES = 1 << 20
#: Smaller requests share segments; others get one of their own size, as two of them would leave much of a shared one
#: free. Those below a segment look into the shared ones first, and the first segment of all is shared: what fits into
#: one has one.
SHARED_BYTES = SEGMENT_BYTES // 4

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


class Segments:
    """Regions cut from the free pieces of segments: best fit, split, merge, under a limit.

    used, total, high_water: bytes of the regions in use, bytes held, and the most that was in use. limit: of total.
    in_use: the regions in use. given: those that were, and are not yet free pieces.

    An interrupt (Ctrl-C), or an error of the source, can stop the methods after any instruction. `count_anew` then
    makes pieces and numbers from the segments and the regions in use, each of which changes at once.
    """

    def __init__(self, source: Callable[[int], Bytes]) -> None:
        self.used = self.total = self.high_water = 0
        self.limit: int | None = None
        self.in_use: dict[Region, Region] = {}  # its pop() is atomic: of two gives of a region, one fails
        self.given: deque[Region] = deque()
        self._source = source
        self._by_number: dict[int, Segment] = {}
        self._fetched = 0  # segments ever fetched, which is the number of the next one
        # One small region keeps a large segment from being whole again. So small and large requests have a
        # shelf of free pieces each, and look on the other's only where there is no new segment to be had.
        self._small: list[Piece] = []
        self._large: list[Piece] = []
        self._out: set[Region] = set()  # those that the pieces and numbers count as in use

    def take(self, size: int, owner: object) -> Region:
        """One try at a region of `size` bytes; MemoryError if there is no room for it."""
        nbytes, number, offset = self._piece(size)
        segment = self._by_number[number]
        segment.remove(nbytes, offset)
        self.used += size
        if self.used > self.high_water:
            self.high_water = self.used
        end = offset + size
        if nbytes > size:
            segment.add(nbytes - size, end)
        region = Region(size, segment.memory[offset:end], segment, offset, owner)
        self._out.add(region)
        self.in_use[region] = region
        return region

    def put_back_given(self) -> None:
        """Make every given region a free piece, merged with its free neighbors."""
        while self.given:
            region = self.given.popleft()
            if region not in self._out:
                continue  # `count_anew` found its bytes free
            self._out.remove(region)
            segment, start = region.segment, region.offset
            end = start + region.span
            if after := segment.starts.get(end, 0):
                segment.remove(after, end)
                end += after
            if before := segment.ends.get(start, 0):
                start -= before
                segment.remove(before, start)
            self.used -= region.span
            segment.add(end - start, start)

    def count_anew(self) -> None:
        """Find the free pieces and the numbers from the regions in use, which are known for certain."""
        self._small.clear()
        self._large.clear()
        self._out = set(self.in_use.copy())  # what is given from here on is put back, what was given before is free
        self.used = sum(region.span for region in self._out)
        self.total = sum(segment.memory.size for segment in self._by_number.values())
        used: dict[int, list[tuple[int, int]]] = {number: [] for number in self._by_number}
        for region in self._out:
            used[region.segment.number].append((region.offset, region.span))
        for number, segment in self._by_number.items():
            segment.fill_gaps(sorted(used[number]))

    def release_unused(self) -> int:
        """Return the segments that are one free piece to the system; the number of bytes."""
        return self._release(self._unused())

    def _piece(self, size: int) -> Piece:
        """The piece to cut `size` bytes from, of a new segment if need be; else MemoryError."""
        own, other = (self._small, self._large) if self._shares(size) else (self._large, self._small)
        piece = _best_fit(own, size)
        if piece is None and size < SEGMENT_BYTES:
            piece = _best_fit(self._small, size)
        if piece is not None:
            return piece
        try:
            return self._fetch(own, size)
        except MemoryError:
            piece = _best_fit(other, size)
            if piece is not None:
                return piece
            if not self._make_room(size):
                raise
        return self._fetch(own, size)

    def _shares(self, size: int) -> bool:
        """Whether a request of `size` bytes wants a segment that it shares."""
        return size < SHARED_BYTES or (size < SEGMENT_BYTES and not self._by_number)

    def _make_room(self, size: int) -> bool:
        """Release the unused segments if that can help a request of `size` bytes; whether it was done."""
        unused = self._unused()
        kept = self.total - sum(segment.memory.size for segment in unused)
        if not unused or (self.limit is not None and kept + size > self.limit):
            return False
        self._release(unused)
        return True

    def _fetch(self, shelf: list[Piece], size: int) -> Piece:
        """The piece that a new segment is, now on `shelf`; MemoryError if the limit or the source refuses."""
        nbytes = SEGMENT_BYTES if self._shares(size) else size
        if self.limit is not None:
            # A shared segment may be smaller than usual, to use up what the limit leaves.
            room = max(self.limit - self.total, 0) & -ALIGNMENT
            nbytes = max(size, min(nbytes, room))
            if nbytes > room:
                raise MemoryError(f"wanted a new segment of {nbytes} bytes, the limit leaves room for {room}")
        segment = Segment(self._fetched, _valid(self._source(nbytes), nbytes), shelf)
        self._fetched += 1
        self._by_number[segment.number] = segment
        self.total += nbytes
        segment.add(nbytes, 0)
        return nbytes, segment.number, 0

    def _unused(self) -> list[Segment]:
        """The segments that are one free piece."""
        return [s for s in self._by_number.values() if s.starts.get(0) == s.memory.size]

    def _release(self, unused: list[Segment]) -> int:
        """Forget these segments, so that their memory returns to the system; the number of bytes."""
        for segment in unused:
            segment.remove(segment.memory.size, 0)
            self.total -= segment.memory.size
            del self._by_number[segment.number]
        return sum(segment.memory.size for segment in unused)


def _best_fit(shelf: list[Piece], size: int) -> Piece | None:
    """The smallest piece of at least `size` bytes; of equals, the first by segment, then by offset."""
    index = bisect_left(shelf, (size, -1, -1))
    return shelf[index] if index < len(shelf) else None


def _valid(memory: Bytes, nbytes: int) -> Bytes:
    """The source's array, if it can be a segment of `nbytes` bytes; else ValueError."""
    plain = memory.dtype == np.uint8 and memory.flags.c_contiguous and memory.flags.writeable
    past = memory.ctypes.data % ALIGNMENT
    if not plain or past or memory.shape != (nbytes,):
        raise ValueError(
            f"wanted {nbytes} writable bytes in a row, aligned to {ALIGNMENT}, from the source of a pool, "
            f"received {memory.dtype} of shape {memory.shape}, {past} bytes past alignment"
        )
    return memory
