"""Numbers of a pool, a pool that only counts, what a pool adds to a step's bytes, and OutOfMemoryError."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.common.unique import Unique
from singa_lite.runtime.segments import SEGMENT_BYTES, SHARED_BYTES

#: Losses, metrics and their copies that are held at a time: one line of the pool each.
RESULTS = 16


class OutOfMemoryError(MemoryError):
    """A pool cannot serve a request within its limit or the device's memory. Fields, in bytes: asked, used, free, limit
    (None: no limit).

    >>> small = device.new_cpu(limit=10_000)
    >>> tensor.zeros((100, 200), device=small)
    Traceback (most recent call last):
        ...
    singa_lite.runtime.pool_numbers.OutOfMemoryError: wanted 80000 bytes from a pool that holds 0 bytes (0 ...
    """

    def __init__(self, asked: int, used: int, free: int, limit: int | None) -> None:
        super().__init__(asked, used, free, limit)
        self.asked, self.used, self.free, self.limit = asked, used, free, limit

    def __str__(self) -> str:
        """Say what was asked, what is held, and what bounds it."""
        scattered = " in pieces too small for it" if self.free >= self.asked > 0 else ""
        return (
            f"wanted {in_words(self.asked)} from a pool that holds {in_words(self.used + self.free)} "
            f"({in_words(self.used)} used, {in_words(self.free)} free{scattered}), "
            f"received none; limit: {in_words(self.limit)}"
        )


def in_words(nbytes: int | None) -> str:
    """A number of bytes, from 1 MiB on in MiB as well; None is none."""
    if nbytes is None:
        return "none"
    return f"{nbytes} bytes" + (f" ({nbytes / 2**20:.1f} MiB)" if nbytes >= 1 << 20 else "")


class CountedPool(Unique):
    """Base of the pools that count the bytes of their regions by themselves, see `Pool`.

    alignment: regions are rounded up to a multiple of it. checked: whether writes are looked after.
    """

    def __init__(self, alignment: int, limit: int | None = None) -> None:
        self.checked = False
        self._alignment = alignment
        self._limit = limit
        self._used = self._high_water = 0

    def _rounded(self, nbytes: int) -> int:
        """The bytes of a region for a request. ValueError for a negative number."""
        if nbytes < 0:
            raise ValueError(f"wanted 0 or more bytes to take, received {nbytes}")
        return -(-nbytes // self._alignment) * self._alignment or self._alignment

    def _count(self, nbytes: int) -> None:
        """Counts a region that was taken."""
        self._used += nbytes
        self._high_water = max(self._high_water, self._used)

    def check(self) -> None:
        """Nothing: no guards lie around regions."""

    @property
    def used(self) -> int:
        """Bytes of all regions in use, in their rounded sizes."""
        return self._used

    @property
    def limit(self) -> int | None:
        """The bound of `total` in bytes, or None."""
        return self._limit

    @property
    def high_water(self) -> int:
        """The largest `used` since the start or the last reset_high_water()."""
        return self._high_water

    def reset_high_water(self) -> None:
        """Let `high_water` start again from the present `used`."""
        self._high_water = self._used


class NoBytes:
    """In the place of memory: a block over it counts as one that has its bytes."""

    def __repr__(self) -> str:
        return "no bytes"


NO_BYTES = NoBytes()


class CountedRegion(Unique):
    """What `CountingPool.take` hands out. nbytes: rounded up as a real pool would."""

    __slots__ = ("memory", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory: NoBytes | None = NO_BYTES


class CountingPool(CountedPool):
    """Take and give, see `Pool` for what the numbers mean. alignment: bytes of the real pool's regions.

    limit: of the real pool, which plans keep to. It bounds nothing here, so that a net that is too large for it can be
    made, and its plan can say by how much.
    """

    def take(self, nbytes: int, owner: object = None) -> CountedRegion:
        """A region of that many bytes and none. ValueError for a negative number."""
        region = CountedRegion(self._rounded(nbytes))
        self._count(region.nbytes)
        return region

    def give(self, region: CountedRegion) -> None:
        """Hand a region back. ValueError if it was given before."""
        if region.memory is None:
            raise ValueError(f"wanted a region in use, received one of {region.nbytes} bytes that was given before")
        region.memory = None
        self._used -= region.nbytes

    @property
    def free(self) -> int:
        """0: nothing is held that is not in use."""
        return 0

    @property
    def total(self) -> int:
        """As `used`."""
        return self._used

    def set_limit(self, limit: int | None) -> None:
        """Let plans keep to another limit; None: to none."""
        self._limit = limit

    def release_free(self) -> int:
        """0: nothing is held that is not in use."""
        return 0

    def __repr__(self) -> str:
        """Say the numbers in words."""
        return f"CountingPool({in_words(self._used)} counted, limit: {in_words(self._limit)})"


def overhead(held: Sequence[int], arena: int, alignment: int) -> int:
    """What the pool adds: results, regions in whole lines, and what stays free in segments that small ones share.

    held: bytes of each block outside the arena; alignment: of the pool's regions. How regions share segments depends on
    the order in which they came; one segment is counted beside what is free at best.
    """
    regions = [nbytes + -nbytes % alignment for nbytes in (*held, arena)]
    taken = sum(regions) + RESULTS * alignment
    free = _free_of_shared(regions) + SEGMENT_BYTES if taken > SEGMENT_BYTES else 0
    return taken + free - sum(held) - arena


def arena_within(budget: int, held: Sequence[int], alignment: int) -> int:
    """The most bytes, a multiple of the alignment, of an arena with which the total is at most the budget; else 0.

    The total leaps by more than a segment where one is no longer enough for all.
    """
    arena, in_one = (budget - sum(held)) // alignment * alignment, _arena_in_one_segment(budget, held, alignment)
    while arena > in_one:
        excess = sum(held) + arena + overhead(held, arena, alignment) - budget
        if excess <= 0:
            return arena
        arena -= -(-excess // alignment) * alignment
    return in_one


def _arena_in_one_segment(budget: int, held: Sequence[int], alignment: int) -> int:
    """Of an arena with which everything shares one segment; 0 if none does."""
    regions = sum(nbytes + -nbytes % alignment for nbytes in held) + RESULTS * alignment
    return max(0, (min(budget, SEGMENT_BYTES) - regions) // alignment * alignment)


def least_total(held: Sequence[int], arena: int, alignment: int) -> int:
    """All of it without what may come on top, what a bad order of regions leaves free in segments."""
    regions = [nbytes + -nbytes % alignment for nbytes in (*held, arena)]
    taken = sum(regions) + RESULTS * alignment
    return taken + (_free_of_shared(regions) if taken > SEGMENT_BYTES else 0)


def _free_of_shared(regions: list[int]) -> int:
    """Bytes left over in segments that small regions share, each in the first where it fits, largest first."""
    left: list[int] = []
    for size in sorted((size for size in regions if size < SHARED_BYTES), reverse=True):
        segment = next((segment for segment, room in enumerate(left) if room >= size), len(left))
        if segment == len(left):
            left.append(SEGMENT_BYTES)
        left[segment] -= size
    return sum(left)
