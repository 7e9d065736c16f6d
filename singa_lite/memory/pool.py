"""A pool of CPU memory for eager work: take and give, best fit, split, merge, a limit, and numbers.

Memory comes from the system in *segments* and is handed out in *regions*, cut from the free *pieces* of a
segment. A request that does not fit goes the way it goes in CuPy's pool (`cupy/cuda/memory.pyx`): free piece,
new segment, release of unused segments, garbage collection, and only then an error that names the bytes.
"""

from __future__ import annotations

import gc
import sys
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from threading import RLock
from typing import Any, TypeAlias, TypeVar
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import OverrunError
from singa_lite.unique import Unique

ALIGNMENT = 64  # bytes, a cache line and the widest vector; regions start at and fill multiples of it
GUARD_BYTES = 64  # on each side of a region of a checked pool
_GUARD = 0xA5
SEGMENT_BYTES = 1 << 20  # smaller requests share segments of this size, others get one of their own size

Bytes: TypeAlias = NDArray[np.uint8]
_Piece: TypeAlias = tuple[int, int, int]  # free memory: bytes, number of the segment, offset in it
_Result = TypeVar("_Result")


class OutOfMemoryError(MemoryError):
    """A pool could not serve a request. Fields, in bytes: asked, used, free, limit (None: no limit)."""

    def __init__(self, asked: int, used: int, free: int, limit: int | None) -> None:
        super().__init__(asked, used, free, limit)
        self.asked, self.used, self.free, self.limit = asked, used, free, limit

    def __str__(self) -> str:
        """Say what was asked, what is held, and what bounds it."""
        scattered = " in pieces too small for it" if self.free >= self.asked > 0 else ""
        return (
            f"wanted {_in_words(self.asked)} from a pool that holds {_in_words(self.used + self.free)} "
            f"({_in_words(self.used)} used, {_in_words(self.free)} free{scattered}), "
            f"received none; limit: {_in_words(self.limit)}"
        )


class _NotAtRestError(RuntimeError):
    """A call from inside a change of the pool."""


def _taken_back() -> None:
    """The owner of a region that was taken back from it."""


class Region(Unique):
    """What `Pool.take` hands out: `memory`, a uint8 array of `nbytes` bytes, aligned to ALIGNMENT.

    `nbytes` is the size asked for, rounded up to a multiple of ALIGNMENT. Once given back, it is not yours.
    """

    __slots__ = ("nbytes", "memory", "_segment", "_offset", "_owner", "_span")

    def __init__(self, nbytes: int, memory: Bytes, segment: _Segment, offset: int, owner: Any = None) -> None:
        self.nbytes = nbytes
        self.memory = memory
        self._span = nbytes  # with its guards
        self._owner: Callable[[], object] | None = None if owner is None else ref(owner)
        self._segment = segment
        self._offset = offset


class Pool(Unique):
    """Memory taken and given in regions, and held from the system in segments.

    `limit` bounds `total`, the bytes held (None: no bound). `source` makes a new uint8 array of the number of
    bytes it is asked for, aligned to ALIGNMENT, or raises MemoryError; it may give to this pool, but not take
    from it. With `checked` set, given bytes are filled with 0xFF, NaN in every float type: stale reads show. Regions
    taken from then on lie between guards, GUARD_BYTES on each side that count as used, by which `check` and `give`
    see writes beyond them.

    Threads may share a pool. `give` uses no lock, since finalizers call it, and the garbage collector may run
    those at any time, also during a `take` on the same thread: it queues the region, and the next `take` or
    reading of a number puts it back.
    """

    def __init__(self, limit: int | None = None, source: Callable[[int], Bytes] | None = None) -> None:
        self.checked = False
        self._source = aligned_memory if source is None else source
        self._limit: int | None = None
        self._used = self._total = self._high_water = 0
        self._segments: dict[int, _Segment] = {}
        self._fetched = 0  # segments ever fetched, which is the number of the next one
        # One small region keeps a large segment from being whole again. So small and large requests have a
        # shelf of free pieces each, and look on the other's only where there is no new segment to be had.
        self._small: list[_Piece] = []
        self._large: list[_Piece] = []
        self._live: dict[Region, Region] = {}  # its pop() is atomic: of two gives of a region, one fails
        self._given: deque[Region] = deque()
        self._out: set[Region] = set()  # those that the pieces and numbers count as in use
        self._lock = RLock()
        self._turn = Context()  # one change can be in it at a time, until it ends, whatever ends it
        self._whole = True  # whether the pieces and numbers are those of the segments and of the regions in use
        self.set_limit(limit)

    def take(self, nbytes: int, owner: Any = None) -> Region:
        """A region of at least `nbytes` bytes, not cleared; 0 bytes give the smallest region.

        owner: an object that gives the region when it dies. One that died without it, as an interrupt came before it
        had the region, is found when memory runs out, and by `release_free`.
        ValueError for a negative number, OutOfMemoryError where nothing helped. The pool is then as before,
        except that unused segments have gone back to the system if it was the source that refused.
        """
        if nbytes < 0:
            raise ValueError(f"wanted 0 or more bytes to take, received {nbytes}")
        size = (nbytes + ALIGNMENT - 1) & -ALIGNMENT or ALIGNMENT
        if self.checked:
            return self._guarded(self._found(nbytes, size + 2 * GUARD_BYTES, owner))
        return self._found(nbytes, size, owner)

    def _found(self, nbytes: int, size: int, owner: Any) -> Region:
        try:
            return self._alone(self._take, size, owner)
        except MemoryError:
            pass
        gc.collect()  # dead tensors in reference cycles give their regions
        self._reclaim()
        try:
            return self._alone(self._take, size, owner)
        except MemoryError as error:
            raise OutOfMemoryError(nbytes, self._used, self._total - self._used, self._limit) from error

    def _guarded(self, region: Region) -> Region:
        """The region without its first and last bytes, which are its guards."""
        region.memory.fill(_GUARD)
        region.memory = region.memory[GUARD_BYTES:-GUARD_BYTES]
        region.nbytes = region.memory.size
        return region

    def check(self) -> None:
        """OverrunError if something wrote to a guard, see `checked`."""
        for region in self._live.copy():
            self._check_guards(region)

    def _check_guards(self, region: Region) -> None:
        if region._span == region.nbytes:
            return
        whole = region._segment.memory[region._offset : region._offset + region._span]
        for where, guard in (("before", whole[:GUARD_BYTES]), ("behind", whole[-GUARD_BYTES:])):
            count = int(np.count_nonzero(guard != _GUARD))
            if count:
                guard.fill(_GUARD)  # it is told once
                raise OverrunError(
                    f"a region of {region.nbytes} bytes: wanted nothing written {where} it, received {count} bytes"
                )

    def give(self, region: Region) -> None:
        """Hand `region` back; never waits. ValueError if it was given before or is not of this pool.

        OverrunError, once it is given, for a write beyond a checked region.
        """
        try:
            if self.checked:
                self._live[region].memory.fill(0xFF)
            self._given.extend(map(self._live.pop, (region,)))  # at once: an interrupt leaves it in use, or given
        except KeyError:
            if region._owner is _taken_back:
                return
            raise ValueError(
                f"wanted a region in use from this pool, received one of {region.nbytes} bytes "
                "that was given before or is another pool's"
            ) from None
        self._check_guards(region)

    @property
    def used(self) -> int:
        """Bytes of all regions in use, in their rounded sizes."""
        self._settle()
        return self._used

    @property
    def free(self) -> int:
        """Bytes held from the system and not in use."""
        self._settle()
        return self._total - self._used

    @property
    def total(self) -> int:
        """Bytes held from the system: used + free."""
        return self._total

    @property
    def limit(self) -> int | None:
        """The bound of `total` in bytes, or None."""
        return self._limit

    @property
    def high_water(self) -> int:
        """The largest `used` since the start or the last reset_high_water()."""
        return self._high_water

    def set_limit(self, limit: int | None) -> None:
        """Bound `total` by `limit` bytes; None lifts the bound. ValueError if more bytes are in use.

        Unused segments are released if `total` is above the limit. Segments in use in part stay, so `total`
        may remain above it; no segment is fetched then.
        """
        with self._lock:
            used = self.used
            if limit is not None and limit < used:
                raise ValueError(f"wanted a limit of at least the {used} bytes used, received {limit}")
            self._limit = limit
            if limit is not None and limit < self._total:
                self.release_free()

    def reset_high_water(self) -> None:
        """Let `high_water` start again from the present `used`."""
        with self._lock:
            self._high_water = self.used

    def release_free(self) -> int:
        """Return the segments that are wholly free to the system; the number of bytes returned."""
        self._reclaim()
        return self._alone(lambda: self._release(self._unused()))

    def __repr__(self) -> str:
        """Say the numbers in words."""
        with self._lock:
            used, free = self.used, self.free
        return (
            f"Pool({_in_words(used)} used, {_in_words(free)} free, "
            f"high water: {_in_words(self._high_water)}, limit: {_in_words(self._limit)})"
        )

    def _reclaim(self) -> None:
        """Take back the regions whose owners have died without giving them."""
        for region in self._live.copy():
            if region._owner is not None and region._owner() is None:
                region._owner = _taken_back  # its owner may be dying just now, in another thread
                self.give(region)

    def _alone(self, change: Callable[..., _Result], *arguments: object) -> _Result:
        """Put back what was given, then do `change`; other threads wait. RuntimeError from inside another."""
        begun = False

        def begin() -> _Result:
            nonlocal begun
            begun = True
            if not self._whole:
                self._count_anew()
            self._whole = False
            self._put_back()
            result = change(*arguments)
            self._whole = True
            return result

        with self._lock:
            try:
                return self._turn.run(copy_context().run, begin)
            except RuntimeError:
                if begun:
                    raise
        raise _NotAtRestError("wanted a pool at rest, received a call from its source or a finalizer")

    def _settle(self) -> None:
        """Put back what was given; from inside a change, leave the numbers as they stand."""
        with suppress(_NotAtRestError):
            self._alone(int)

    # An interrupt (Ctrl-C), or an error of the source, can stop the methods below after any instruction. The next
    # change then makes pieces and numbers anew from the segments and the regions in use, each of which changes at once.

    def _count_anew(self) -> None:
        """Find the free pieces and the numbers from what is known for certain."""
        self._small.clear()
        self._large.clear()
        self._out = set(self._live.copy())  # what is given from here on is put back, what was given before is free
        self._used = sum(region._span for region in self._out)
        self._total = sum(segment.memory.size for segment in self._segments.values())
        used: dict[int, list[tuple[int, int]]] = {number: [] for number in self._segments}
        for region in self._out:
            used[region._segment.number].append((region._offset, region._span))
        for number, segment in self._segments.items():
            segment.fill_gaps(sorted(used[number]))

    def _put_back(self) -> None:
        """Make every given region a free piece, merged with its free neighbors."""
        while self._given:
            region = self._given.popleft()
            if region not in self._out:
                continue  # its bytes were found free
            self._out.remove(region)
            segment, start = region._segment, region._offset
            end = start + region._span
            if after := segment.starts.get(end, 0):
                segment.remove(after, end)
                end += after
            if before := segment.ends.get(start, 0):
                start -= before
                segment.remove(before, start)
            self._used -= region._span
            segment.add(end - start, start)

    def _take(self, size: int, owner: Any) -> Region:
        """One try at a region of `size` bytes; MemoryError if there is no place for it."""
        nbytes, number, offset = self._place(size)
        segment = self._segments[number]
        segment.remove(nbytes, offset)
        self._used += size
        if self._used > self._high_water:
            self._high_water = self._used
        end = offset + size
        if nbytes > size:
            segment.add(nbytes - size, end)
        region = Region(size, segment.memory[offset:end], segment, offset, owner)
        self._out.add(region)
        self._live[region] = region
        return region

    def _place(self, size: int) -> _Piece:
        """The piece to cut `size` bytes from, of a new segment if need be; else MemoryError."""
        own, other = (self._small, self._large) if size < SEGMENT_BYTES else (self._large, self._small)
        piece = _best_fit(own, size)
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

    def _make_room(self, size: int) -> bool:
        """Release the unused segments if that can help a request of `size` bytes; whether it was done."""
        unused = self._unused()
        kept = self._total - sum(segment.memory.size for segment in unused)
        if not unused or (self._limit is not None and kept + size > self._limit):
            return False
        self._release(unused)
        return True

    def _fetch(self, shelf: list[_Piece], size: int) -> _Piece:
        """The piece that a new segment is, now on `shelf`; MemoryError if the limit or the source refuses."""
        nbytes = max(size, SEGMENT_BYTES)
        if self._limit is not None:
            # A shared segment may be smaller than usual, to use up what the limit leaves.
            room = max(self._limit - self._total, 0) & -ALIGNMENT
            nbytes = max(size, min(nbytes, room))
            if nbytes > room:
                raise MemoryError(f"wanted a new segment of {nbytes} bytes, the limit leaves room for {room}")
        segment = _Segment(self._fetched, _valid(self._source(nbytes), nbytes), shelf)
        self._fetched += 1
        self._segments[segment.number] = segment
        self._total += nbytes
        segment.add(nbytes, 0)
        return nbytes, segment.number, 0

    def _unused(self) -> list[_Segment]:
        """The segments that are one free piece."""
        return [s for s in self._segments.values() if s.starts.get(0) == s.memory.size]

    def _release(self, unused: list[_Segment]) -> int:
        """Forget these segments, so that their memory returns to the system; the number of bytes."""
        for segment in unused:
            segment.remove(segment.memory.size, 0)
            self._total -= segment.memory.size
            del self._segments[segment.number]
        return sum(segment.memory.size for segment in unused)


class _Segment:
    """Memory from the system, the shelf for its free pieces, and their sizes by where they start and end."""

    __slots__ = ("number", "memory", "shelf", "starts", "ends")

    def __init__(self, number: int, memory: Bytes, shelf: list[_Piece]) -> None:
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


def aligned_memory(nbytes: int) -> Bytes:
    """New, unwritten memory: `nbytes` of uint8, aligned to ALIGNMENT. MemoryError if there is none."""
    if nbytes > sys.maxsize - ALIGNMENT:
        raise MemoryError(f"wanted {nbytes} bytes, more than an address space holds")
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def _best_fit(shelf: list[_Piece], size: int) -> _Piece | None:
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


def _in_words(nbytes: int | None) -> str:
    """A number of bytes, from 1 MiB on in MiB as well; None is none."""
    if nbytes is None:
        return "none"
    return f"{nbytes} bytes" + (f" ({nbytes / 2**20:.1f} MiB)" if nbytes >= 1 << 20 else "")
