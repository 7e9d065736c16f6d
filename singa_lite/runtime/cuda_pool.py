"""A pool of GPU memory: CuPy's, with the numbers and errors of the CPU's pool."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from singa_lite.common.unique import Unique
from singa_lite.runtime.cupy_types import CupyPool, Pointer
from singa_lite.runtime.pool import Pool
from singa_lite.runtime.pool_numbers import CountedPool, CountingPool, OutOfMemoryError

ALIGNMENT = 512  # bytes, the granule of CuPy's pool


class CudaRegion(Unique):
    """What `CudaPool.take` hands out. memory: None once it was given back; nbytes: rounded up to ALIGNMENT."""

    __slots__ = ("memory", "nbytes")

    def __init__(self, memory: Pointer, nbytes: int) -> None:
        self.memory: Pointer | None = memory
        self.nbytes = nbytes

    @property
    def pointer(self) -> Pointer:
        """The memory of a region in use. ValueError once it was given back."""
        if self.memory is None:
            raise ValueError(f"wanted a region in use, received one of {self.nbytes} bytes that was given before")
        return self.memory


class CudaPool(CountedPool):
    """Take and give over a `cupy.cuda.MemoryPool` of its own, see `Pool` for what the numbers mean.

    Bytes that are given back serve the same stream again at once: its work is done in order. pool: CuPy's; here:
    makes the GPU and its stream the current ones; fill: sets a memory's bytes to 0xFF, for `checked`.
    """

    def __init__(
        self,
        pool: CupyPool,
        here: Callable[[], AbstractContextManager[object]],
        fill: Callable[[Pointer, int], None],
        limit: int | None = None,
    ) -> None:
        super().__init__(ALIGNMENT)
        self._pool = pool
        self._here = here
        self._fill = fill
        self.set_limit(limit)

    def take(self, nbytes: int, owner: object = None) -> CudaRegion:
        """A region of at least `nbytes` bytes. ValueError for a negative number, OutOfMemoryError if there is none.

        owner: of no interest here, as CuPy takes bytes back with the last reference to them.
        """
        size = self._rounded(nbytes)
        memory = self._allocated(size)
        if memory is None:
            gc.collect()  # dead tensors in reference cycles give their regions
            memory = self._allocated(size)
        if memory is None:
            raise OutOfMemoryError(nbytes, self._used, self.free, self._limit)
        self._count(size)
        return CudaRegion(memory, size)

    def _allocated(self, size: int) -> Pointer | None:
        """Bytes, or None. CuPy's pool gives its free blocks back to the driver before it refuses."""
        with self._here():
            try:
                return self._pool.malloc(size)
            except MemoryError:  # cupy.cuda.memory.OutOfMemoryError is one
                return None

    def give(self, region: CudaRegion) -> None:
        """Hand a region back. ValueError if it was given before."""
        memory = region.pointer
        if self.checked:
            self._fill(memory, region.nbytes)
        region.memory = None
        self._used -= region.nbytes

    @property
    def free(self) -> int:
        """Bytes held from the driver and not in use."""
        return max(0, self.total - self._used)

    @property
    def total(self) -> int:
        """Bytes held from the driver."""
        with self._here():  # CuPy's pool answers for the current GPU
            return int(self._pool.total_bytes())

    def set_limit(self, limit: int | None) -> None:
        """Bound `total`; None lifts the bound. ValueError if more bytes are in use."""
        if limit is not None and limit < self._used:
            raise ValueError(f"wanted a limit of at least the {self._used} bytes used, received {limit}")
        self._limit = limit
        with self._here():
            self._pool.set_limit(size=limit or 0)  # CuPy's word for no limit is 0
            if limit is not None and limit < self.total:
                self._pool.free_all_blocks()

    def release_free(self) -> int:
        """Return free blocks to the driver; the number of bytes."""
        before = self.total
        with self._here():
            self._pool.free_all_blocks()
        return before - self.total

    def __repr__(self) -> str:
        limit = "none" if self._limit is None else f"{self._limit} bytes"
        numbers = f"{self._used} bytes used, {self.free} free, high water: {self._high_water}"
        return f"CudaPool({numbers}, limit: {limit})"


#: What a device takes bytes from, see `Pool` for what the numbers mean.
MemoryPool: TypeAlias = Pool | CudaPool | CountingPool
