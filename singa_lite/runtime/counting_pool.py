"""CountingPool: a pool that hands out no memory and counts what a real one would have."""

from __future__ import annotations

from singa_lite.common.unique import Unique
from singa_lite.runtime.pool_numbers import CountedPool, in_words
from singa_lite.runtime.without_bytes import NO_BYTES, NoBytes


class CountedRegion(Unique):
    """What `CountingPool.take` hands out. nbytes: rounded up as a real pool would."""

    __slots__ = ("memory", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory: NoBytes | None = NO_BYTES


class CountingPool(CountedPool):
    """Take and give, see `memory.pool.Pool` for what the numbers mean. alignment: bytes of the real pool's regions.

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
