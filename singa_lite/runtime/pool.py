"""A pool of CPU memory for eager work: take and give, a limit, and numbers.

Memory comes from the system in *segments* and is handed out in *regions*, cut from the free *pieces* of a
segment. A request that does not fit goes the way it goes in CuPy's pool (`cupy/cuda/memory.pyx`): free piece,
new segment, release of unused segments, garbage collection, and only then an error that names the bytes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from threading import RLock
from typing import TypeVar

from singa_lite.common.contexts import follow
from singa_lite.common.unique import Unique
from singa_lite.runtime.pool_numbers import OutOfMemoryError as OutOfMemoryError
from singa_lite.runtime.pool_numbers import in_words
from singa_lite.runtime.segments import ALIGNMENT as ALIGNMENT
from singa_lite.runtime.segments import GUARD_BYTES as GUARD_BYTES
from singa_lite.runtime.segments import SEGMENT_BYTES as SEGMENT_BYTES
from singa_lite.runtime.segments import Bytes as Bytes
from singa_lite.runtime.segments import Region as Region
from singa_lite.runtime.segments import Segments
from singa_lite.runtime.segments import aligned_memory as aligned_memory

_Result = TypeVar("_Result")


class _NotAtRestError(RuntimeError):
    """A call from inside a change of the pool."""


def _taken_back() -> None:
    """The owner of a region that was taken back from it."""


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
        self._segments = Segments(aligned_memory if source is None else source)
        self._whole = True  # whether the pieces and numbers are those of the segments and of the regions in use
        self.after_fork()
        follow(self)
        self.set_limit(limit)

    def after_fork(self) -> None:
        """In a child process, where the other threads are not: none of them is within a change."""
        self._lock = RLock()
        self._turn = Context()  # one change can be in it at a time, until it ends, whatever ends it

    def take(self, nbytes: int, owner: object = None) -> Region:
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
            region = self._taken_region(nbytes, size + 2 * GUARD_BYTES, owner)
            region.guard()
            return region
        return self._taken_region(nbytes, size, owner)

    def _taken_region(self, nbytes: int, size: int, owner: object) -> Region:
        try:
            return self._exclusively(self._segments.take, size, owner)
        except MemoryError:
            pass
        gc.collect()  # dead tensors in reference cycles give their regions
        self._reclaim()
        try:
            return self._exclusively(self._segments.take, size, owner)
        except MemoryError as error:
            held = self._segments
            raise OutOfMemoryError(nbytes, held.used, held.total - held.used, held.limit) from error

    def check(self) -> None:
        """OverrunError if something wrote to a guard, see `checked`."""
        for region in self._segments.in_use.copy():
            region.check_guards()

    def give(self, region: Region) -> None:
        """Hand `region` back; never waits. ValueError if it was given before or is not of this pool.

        OverrunError for a write beyond a checked region, which is given nevertheless.
        """
        in_use = self._segments.in_use
        try:
            if self.checked:
                in_use[region].memory.fill(0xFF)
            self._segments.given.extend(map(in_use.pop, (region,)))  # at once: an interrupt leaves it in use, or given
        except KeyError:
            if region.owner is _taken_back:
                return
            raise ValueError(
                f"wanted a region in use from this pool, received one of {region.nbytes} bytes "
                "that was given before or is another pool's"
            ) from None
        region.check_guards()

    @property
    def used(self) -> int:
        """Bytes of all regions in use, in their rounded sizes."""
        self._settle()
        return self._segments.used

    @property
    def free(self) -> int:
        """Bytes held from the system and not in use."""
        self._settle()
        return self._segments.total - self._segments.used

    @property
    def total(self) -> int:
        """Bytes held from the system: used + free."""
        return self._segments.total

    @property
    def limit(self) -> int | None:
        """The bound of `total` in bytes, or None."""
        return self._segments.limit

    @property
    def high_water(self) -> int:
        """The largest `used` since the start or the last reset_high_water()."""
        return self._segments.high_water

    def set_limit(self, limit: int | None) -> None:
        """Bound `total` by `limit` bytes; None lifts the bound. ValueError if more bytes are in use.

        Unused segments are released if `total` is above the limit. Segments in use in part stay, so `total`
        may remain above it; no segment is fetched then.
        """
        with self._lock:
            used = self.used
            if limit is not None and limit < used:
                raise ValueError(f"wanted a limit of at least the {used} bytes used, received {limit}")
            self._segments.limit = limit
            if limit is not None and limit < self._segments.total:
                self.release_free()

    def reset_high_water(self) -> None:
        """Let `high_water` start again from the present `used`."""
        with self._lock:
            self._segments.high_water = self.used

    def release_free(self) -> int:
        """Return the segments that are wholly free to the system; the number of bytes returned."""
        self._reclaim()
        return self._exclusively(self._segments.release_unused)

    def __repr__(self) -> str:
        """Say the numbers in words."""
        with self._lock:
            used, free = self.used, self.free
        return (
            f"Pool({in_words(used)} used, {in_words(free)} free, "
            f"high water: {in_words(self._segments.high_water)}, limit: {in_words(self._segments.limit)})"
        )

    def _reclaim(self) -> None:
        """Take back the regions whose owners have died without giving them."""
        for region in self._segments.in_use.copy():
            if region.owner is not None and region.owner() is None:
                region.owner = _taken_back  # its owner may be dying just now, in another thread
                self.give(region)

    def _exclusively(self, change: Callable[..., _Result], *arguments: object) -> _Result:
        """Puts back what was given, then does `change`; other threads wait. RuntimeError from inside another change."""
        begun = False

        def begin() -> _Result:
            nonlocal begun
            begun = True
            if not self._whole:
                self._segments.count_anew()
            self._whole = False
            self._segments.put_back_given()
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
            self._exclusively(int)
