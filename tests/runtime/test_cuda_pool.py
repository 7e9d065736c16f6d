"""The pool of a GPU over a stand-in for CuPy's: numbers, limit, errors."""

from __future__ import annotations

import gc
from contextlib import nullcontext

import pytest

from singa_lite import OutOfMemoryError
from singa_lite.runtime.cuda_pool import CudaPool


class Memory:
    """What `malloc` gives; its bytes go back to the pool when it dies, as with CuPy."""

    def __init__(self, pool: CupyPool, nbytes: int) -> None:
        self.pool, self.nbytes = pool, nbytes

    def __del__(self) -> None:
        self.pool.idle += self.nbytes


class CupyPool:
    """`cupy.cuda.MemoryPool` over a GPU of `room` bytes, without its bins: idle bytes serve any request."""

    def __init__(self, room: int = 1 << 20) -> None:
        self.room, self.held, self.idle, self.limit = room, 0, 0, 0

    def malloc(self, nbytes: int) -> Memory:
        fetched = max(0, nbytes - self.idle)
        if self.held + fetched > min(self.room, self.limit or self.room):
            raise MemoryError("out of memory")
        self.idle -= nbytes - fetched
        self.held += fetched
        return Memory(self, nbytes)

    def total_bytes(self) -> int:
        return self.held

    def set_limit(self, size: int) -> None:
        self.limit = size

    def free_all_blocks(self) -> None:
        self.held -= self.idle
        self.idle = 0


def pool_of(limit: int | None = None, room: int = 1 << 20) -> CudaPool:
    return CudaPool(CupyPool(room), nullcontext, lambda memory, nbytes: None, limit)


def test_bytes_are_counted_in_granules():
    pool = pool_of()
    first, second = pool.take(700), pool.take(0)
    assert (first.nbytes, second.nbytes, pool.used, pool.total) == (1024, 512, 1536, 1536)
    pool.give(first)
    assert (pool.used, pool.free, pool.high_water) == (512, 1024, 1536)
    pool.reset_high_water()
    assert pool.high_water == 512
    assert pool.release_free() == 1024
    assert (pool.total, pool.free) == (512, 0)


def test_the_limit_bounds_what_is_held_and_the_error_names_the_bytes():
    pool = pool_of(limit=4096)
    held = pool.take(3000)
    with pytest.raises(OutOfMemoryError, match="2000") as caught:
        pool.take(2000)
    assert (caught.value.asked, caught.value.used, caught.value.limit) == (2000, 3072, 4096)
    assert pool.used == 3072
    with pytest.raises(ValueError, match="1000"):
        pool.set_limit(1000)
    pool.set_limit(None)
    pool.take(2000)
    pool.give(held)


def test_a_lower_limit_gives_idle_bytes_back_and_a_full_gpu_needs_none():
    pool = pool_of()
    pool.give(pool.take(8192))
    pool.set_limit(4096)
    assert (pool.total, pool.limit) == (0, 4096)
    with pytest.raises(OutOfMemoryError, match="4096"):
        pool_of(room=2048).take(4096)


def test_dead_cycles_give_their_bytes_before_there_is_an_error():
    pool = pool_of(room=4096)

    class Cycle:
        def __init__(self) -> None:
            self.itself, self.region = self, pool.take(4096)

        def __del__(self) -> None:
            pool.give(self.region)

    gc.disable()
    try:
        Cycle()
        assert pool.take(1024).nbytes == 1024
    finally:
        gc.enable()


def test_giving_twice_and_taking_less_than_nothing():
    pool = pool_of()
    region = pool.take(10)
    pool.give(region)
    with pytest.raises(ValueError, match="given"):
        pool.give(region)
    with pytest.raises(ValueError, match="-1"):
        pool.take(-1)
    assert pool.used == 0


def test_all_numbers_are_asked_of_cupy_with_the_gpu_current():
    class Here(CupyPool):
        inside = 0

        def __enter__(self) -> None:
            self.inside += 1

        def __exit__(self, *_: object) -> None:
            self.inside -= 1

        def __getattribute__(self, name: str):
            if name in ("malloc", "total_bytes", "set_limit", "free_all_blocks"):
                assert self.inside, f"{name} answers for another GPU"
            return super().__getattribute__(name)

    here = Here()
    pool = CudaPool(here, lambda: here, lambda memory, nbytes: None, limit=4096)
    pool.give(pool.take(600))
    assert (pool.total, pool.free, pool.release_free()) == (1024, 1024, 1024)
    pool.set_limit(512)
    assert "512" in repr(pool)


def test_a_checked_pool_fills_what_is_given_back():
    filled = []
    pool = CudaPool(CupyPool(), nullcontext, lambda memory, nbytes: filled.append(nbytes))
    pool.give(pool.take(600))
    assert filled == []
    pool.checked = True
    pool.give(pool.take(600))
    assert filled == [1024]
