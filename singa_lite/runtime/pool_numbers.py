"""The numbers of a pool, OutOfMemoryError of one that cannot serve a request, and bytes in words."""

from __future__ import annotations

from singa_lite.common.unique import Unique


class OutOfMemoryError(MemoryError):
    """A pool could not serve a request. Fields, in bytes: asked, used, free, limit (None: no limit)."""

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
    """Base of the pools that count the bytes of their regions by themselves, see `memory.pool.Pool`.

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
