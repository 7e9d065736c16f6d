"""The pool of a GPU over a stand-in for CuPy's: numbers, limit, errors."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from late_cupy import MemoryPool
from singa_lite import OutOfMemoryError
from singa_lite.runtime.cuda_pool import CudaPool


class CupyPool(MemoryPool):
    """It answers only where its GPU is current, inside `with`."""

    inside = 0

    def __enter__(self) -> None:
        self.inside += 1

    def __exit__(self, *_: object) -> None:
        self.inside -= 1

    def __getattribute__(self, name: str) -> Any:
        if name in ("malloc", "total_bytes", "set_limit", "free_all_blocks"):
            assert self.inside, f"{name} answers for another GPU"
        return super().__getattribute__(name)


def pool_of(limit: int | None = None, room: int = 1 << 20, filled: list[int] | None = None) -> CudaPool:
    cupy, seen = CupyPool(room), [] if filled is None else filled
    return CudaPool(cupy, lambda: cupy, lambda memory, nbytes: seen.append(nbytes), limit)


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
    with pytest.raises(ValueError, match="given"):
        pool.give(first)
    with pytest.raises(ValueError, match="-1"):
        pool.take(-1)
    assert pool.used == 512


def test_the_limit_bounds_what_is_held_and_the_error_names_the_bytes():
    pool = pool_of(limit=4096)
    held = pool.take(3000)
    with pytest.raises(OutOfMemoryError, match="2000") as caught:
        pool.take(2000)
    assert (caught.value.asked, caught.value.used, caught.value.limit) == (2000, 3072, 4096)
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


def test_a_checked_pool_fills_what_is_given_back():
    filled = list[int]()
    pool = pool_of(filled=filled)
    pool.give(pool.take(600))
    assert filled == []
    pool.checked = True
    pool.give(pool.take(600))
    assert filled == [1024]
