"""The pool of CPU memory: placement, limit, numbers, errors, and what finalizers and threads may do to it."""

from __future__ import annotations

import gc
import itertools
import pickle
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from singa_lite.runtime import pool as pool_module
from singa_lite.runtime import segments
from singa_lite.runtime.pool import ALIGNMENT, Bytes, OutOfMemoryError, Pool, Region, aligned_memory

MIB = 1 << 20
#: Smaller requests share segments of 1 MiB.
SHARED = MIB // 4


class Source:
    """Memory for a pool, `most` bytes at a time; notes what was asked of it and what is still held."""

    def __init__(self, most: int = 1 << 40) -> None:
        self.most = most
        self.asked: list[int] = []
        self._handed_out: list[tuple[weakref.ref[Any], int, int]] = []

    def __call__(self, nbytes: int) -> Bytes:
        self.asked.append(nbytes)
        if self.held + nbytes > self.most:
            raise MemoryError(f"the source has {self.most} bytes")
        memory = aligned_memory(nbytes)  # a view; its base lives as long as any view
        self._handed_out.append((weakref.ref(memory.base), memory.ctypes.data, nbytes))
        return memory

    @property
    def segments(self) -> list[tuple[int, int]]:
        """Address and bytes of what is not yet returned, oldest first."""
        return [(address, nbytes) for base, address, nbytes in self._handed_out if base() is not None]

    @property
    def held(self) -> int:
        return sum(nbytes for _, nbytes in self.segments)


class Tensor:
    """Gives its region back when it dies, and lies in a reference cycle: only the collector ends it."""

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self.pool, self.region, self.itself = pool, pool.take(nbytes), self

    def __del__(self) -> None:
        self.pool.give(self.region)


def address(region: Region) -> int:
    return int(region.memory.ctypes.data)


def numbers(pool: Pool) -> tuple[int, int, int, int]:
    return pool.used, pool.free, pool.total, pool.high_water


# Regions and placement


@pytest.mark.parametrize(
    ("nbytes", "rounded"),
    [(0, 64), (1, 64), (64, 64), (65, 128), (1000, 1024), (MIB - 1, MIB), (3 * MIB + 1, 3 * MIB + 64)],
)
def test_region_is_rounded_and_aligned(nbytes, rounded):
    pool = Pool()
    for region in (pool.take(nbytes), pool.take(nbytes)):
        memory = region.memory
        assert (region.nbytes, memory.shape, memory.dtype) == (rounded, (rounded,), np.uint8)
        assert memory.flags.writeable and address(region) % ALIGNMENT == 0
    assert pool.used == 2 * rounded


def test_pieces_of_different_segments_do_not_merge():
    memory, asked = aligned_memory(4 * MIB), list[int]()

    def one_after_the_other(nbytes: int) -> Bytes:
        start = sum(asked)
        asked.append(nbytes)
        return memory[start : start + nbytes]

    pool = Pool(source=one_after_the_other)
    left, right = pool.take(MIB), pool.take(MIB)
    assert address(right) == address(left) + MIB
    pool.give(left)
    pool.give(right)
    assert address(pool.take(2 * MIB)) == address(right) + MIB
    assert asked == [MIB, MIB, 2 * MIB]


# Limit and failure


def test_failure_names_the_bytes_and_leaves_the_pool_as_it_was():
    source = Source()
    pool = Pool(limit=4 * MIB, source=source)
    pool.take(2 * MIB)
    pool.take(1000)
    pool.give(pool.take(MIB))
    before = numbers(pool)
    with pytest.raises(OutOfMemoryError) as caught:
        pool.take(3_000_000)
    error = caught.value
    assert isinstance(error, MemoryError)
    assert (error.asked, error.used, error.free, error.limit) == (3_000_000, 2098176, 2096128, 4194304)
    assert all(number in str(error) for number in ("3000000", "4194304", "2098176", "2096128"))
    again = pickle.loads(pickle.dumps(error))
    assert (vars(again), str(again)) == (vars(error), str(error))
    assert numbers(pool) == before
    assert pool.take(MIB).nbytes == MIB
    assert source.asked == [2 * MIB, MIB, MIB]


def test_unused_segments_are_returned_before_a_source_that_refused_is_asked_again():
    source = Source(most=5 * MIB)
    pool = Pool(source=source)
    region = pool.take(MIB)
    pool.give(pool.take(3 * MIB))
    pool.give(pool.take(4 * MIB))
    with pytest.raises(OutOfMemoryError) as caught:
        pool.take(6 * MIB)
    assert str(caught.value.__cause__) == f"the source has {5 * MIB} bytes"
    assert numbers(pool)[:3] == (MIB, 0, MIB) and source.held == MIB == region.nbytes
    assert pool.take(4 * MIB).nbytes == 4 * MIB


@pytest.mark.parametrize("nbytes", [1 << 62, 1 << 63, 1 << 70])
def test_more_than_the_system_has(nbytes):
    pool = Pool()
    with pytest.raises(OutOfMemoryError, match=str(nbytes)):
        pool.take(nbytes)
    assert numbers(pool) == (0, 0, 0, 0)


def test_dead_tensors_in_cycles_are_collected_before_failing():
    pool = Pool(limit=3 * MIB)
    gc.disable()
    try:
        Tensor(pool, 2 * MIB)
        assert pool.used == 2 * MIB
        assert pool.take(3 * MIB).nbytes == 3 * MIB
    finally:
        gc.enable()


# Giving


def test_giving_what_is_not_in_use_there_is_an_error():
    pool, other = Pool(), Pool()
    other.checked = True
    region = pool.take(1000)
    region.memory.fill(7)
    with pytest.raises(ValueError, match="1024 bytes"):
        other.give(region)
    assert (region.memory == 7).all()
    pool.give(region)
    for _ in range(2):
        with pytest.raises(ValueError, match="1024 bytes"):
            pool.give(region)
        pool.take(1000)  # the second time its memory is in use, but by another
    assert (pool.used, other.used) == (2048, 0)


@pytest.mark.parametrize("checked", [True, False])
def test_checked_pool_fills_given_memory_with_nan(checked):
    pool = Pool()
    pool.checked = checked
    left, region, right = pool.take(64), pool.take(320), pool.take(64)
    for each in (left, region, right):
        each.memory.fill(1)
    stale = region.memory
    pool.give(region)
    for dtype in (np.float16, np.float32, np.float64):
        assert np.isnan(stale.view(dtype)).all() == checked
    assert checked or (stale == 1).all()
    assert (left.memory == 1).all() and (right.memory == 1).all()


# Numbers


def test_the_high_water_follows_takes_and_gives():
    pool = Pool()
    small, large = pool.take(1000), pool.take(3 * MIB)
    pool.give(large)
    assert numbers(pool) == (1024, 4 * MIB - 1024, 4 * MIB, 3 * MIB + 1024)
    pool.reset_high_water()
    pool.give(small)
    pool.take(64)
    assert pool.high_water == 1024
    pool.take(2 * MIB)
    assert pool.high_water == 2 * MIB + 64


def test_memory_returns_when_the_pool_dies():
    source = Source()
    pool = Pool(source=source)
    pool.give(pool.take(100))
    pool.take(3 * MIB)
    gc.disable()
    try:
        del pool
        assert source.held == 0
    finally:
        gc.enable()


def test_set_limit():
    pool = Pool(limit=2 * MIB)
    pool.take(MIB)
    region = pool.take(1000)
    with pytest.raises(ValueError, match="1049599"):
        pool.set_limit(MIB + 1023)
    assert pool.limit == 2 * MIB
    pool.set_limit(MIB + 1024)  # the shared segment is in use and stays
    assert (pool.limit, pool.total) == (MIB + 1024, 2 * MIB)
    with pytest.raises(OutOfMemoryError):
        pool.take(MIB)
    pool.give(region)
    pool.set_limit(MIB)
    assert pool.total == MIB
    pool.set_limit(None)
    pool.take(5 * MIB)
    assert (pool.limit, pool.total) == (None, 6 * MIB)
    with pytest.raises(ValueError, match="-1"):
        Pool(limit=-1)
    with pytest.raises(ValueError, match="-3"):
        pool.take(-3)


# Against a slow model, which finds the pieces from the segments and the regions in use

SMALL = st.integers(0, 700) | st.integers(0, SHARED - 64)
LARGE = st.integers(SHARED, MIB - 64) | st.integers(MIB + 1, 3 * MIB)
STEPS = st.lists(
    st.tuples(st.just("take"), SMALL | LARGE)
    | st.tuples(st.just("give"), st.integers(0, 1000))
    | st.tuples(st.just("release"), st.just(0)),
    max_size=60,
)


def free_pieces(source: Source, live: list[Region]) -> Iterator[tuple[int, int, int, int]]:
    """(bytes, place of the segment in the order of arrival, address, bytes of the segment) of each piece."""
    for place, (start, nbytes) in enumerate(source.segments):
        end = start + nbytes
        inside = sorted((address(region), region.nbytes) for region in live if start <= address(region) < end)
        for used_from, used_bytes in [*inside, (end, 0)]:
            if used_from > start:
                yield used_from - start, place, start, nbytes
            start = used_from + used_bytes


def check_numbers_and_overlap(pool: Pool, source: Source, live: list[Region]) -> None:
    assert pool.used == sum(region.nbytes for region in live)
    assert pool.used + pool.free == pool.total == source.held
    spans = sorted((address(region), region.nbytes) for region in live)
    assert all(start + nbytes <= after for (start, nbytes), (after, _) in itertools.pairwise(spans))
    # Sorted and apart from one another, they must also lie inside the segments.
    assert sum(piece[0] for piece in free_pieces(source, live)) == pool.free


def check_all_merges(pool: Pool, source: Source, live: list[Region]) -> None:
    while live:
        pool.give(live.pop())
    assert (pool.used, pool.free) == (0, pool.total)
    total = pool.total
    assert pool.release_free() == total
    assert (pool.total, source.held) == (0, 0)


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_placement_is_that_of_the_model(steps: list[tuple[str, int]]):
    source = Source()
    pool = Pool(source=source)
    live: list[Region] = []
    for what, number in steps:
        pieces = list(free_pieces(source, live))
        if what == "take":
            # Shared segments have 1 MiB; those of large requests, here, less or more.
            segments = len(source.asked)
            shares = number < SHARED or (number < MIB and not source.segments)
            fits = [p for p in pieces if p[0] >= max(number, 1)]
            fitting = [p for p in fits if (p[3] == MIB) == shares]
            if not fitting and number < MIB:
                fitting = [p for p in fits if p[3] == MIB]
            live.append(pool.take(number))
            assert len(source.asked) == segments + (not fitting)
            assert address(live[-1]) == (min(fitting)[2] if fitting else source.segments[-1][0])
        elif what == "release":
            assert pool.release_free() == sum(piece[0] for piece in pieces if piece[0] == piece[3])
        elif live:
            pool.give(live.pop(number % len(live)))
        check_numbers_and_overlap(pool, source, live)
    check_all_merges(pool, source, live)


@settings(deadline=None, max_examples=30)
@given(STEPS, st.integers(0, 6 * MIB))
def test_limited_pool_fails_exactly_where_the_model_does(steps: list[tuple[str, int]], limit: int):
    source = Source()
    pool = Pool(limit=limit, source=source)
    live: list[Region] = []
    for what, number in steps:
        if what == "take":
            pieces = list(free_pieces(source, live))
            unused = sum(piece[0] for piece in pieces if piece[0] == piece[3])
            size = max(number + -number % 64, 64)
            fits = any(piece[0] >= size for piece in pieces) or pool.total - unused + size <= limit
            before = pool.used, pool.total
            try:
                live.append(pool.take(number))
                assert fits
            except OutOfMemoryError:
                assert not fits
                assert (pool.used, pool.total) == before
        elif live:
            pool.give(live.pop(number % len(live)))
        assert pool.total <= limit
        check_numbers_and_overlap(pool, source, live)
    check_all_merges(pool, source, live)


# Finalizers and threads


POOL_FILES = {module.__file__ for module in (pool_module, segments)}


def take_with_give_at_line(pool: Pool, nbytes: int, victims: list[Region], line: int) -> tuple[Region, int]:
    """Take, and give `victims` just before the `line`th line of the pool that runs; also the lines in all."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in POOL_FILES:
            return None
        if event == "line":
            while lines == line and victims:
                pool.give(victims.pop())
            lines += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        region = pool.take(nbytes)
    finally:
        sys.settrace(before)
    return region, lines


@pytest.mark.parametrize("nbytes", [100, 200_000, MIB + 1, 2 * MIB + 1])
def test_give_before_any_line_of_take(nbytes: int):
    line, lines = 0, 1
    while line < lines:
        source = Source()
        pool = Pool(limit=5 * MIB, source=source)
        small = [pool.take(size) for size in (64, MIB - 128 - 640, 128, 256, 64, 192)]
        large = [pool.take(MIB), pool.take(2 * MIB + 64)]
        for region in (small.pop(2), small.pop(), large.pop()):
            pool.give(region)
        del region
        victims = [small.pop(2)]  # between two free pieces
        region, lines = take_with_give_at_line(pool, nbytes, victims, line)
        live = [*small, *large, region]
        check_numbers_and_overlap(pool, source, live)
        del small, large, region
        check_all_merges(pool, source, live)
        line += 1
    assert lines > 20


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads change places as often as can be."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def run_threads(work: Callable[[int], object], count: int) -> list[Any]:
    """The results of work(0), work(1), ..., each in a thread of its own; what they raise is a result."""
    results: list[Any] = [f"thread {index} hangs" for index in range(count)]

    def run(index: int) -> None:
        try:
            results[index] = work(index)
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    return results


@pytest.mark.usefixtures("hasty_threads")
def test_threads_share_a_pool():
    pool = Pool()
    barrier = threading.Barrier(4)

    def work(index: int) -> str:
        rng = random.Random(index)
        live: list[Region] = []
        barrier.wait(10)
        for _ in range(2000):
            live.append(pool.take(rng.randrange(5000)))
            live[-1].memory.fill(index)
            if len(live) > 20 or rng.random() < 0.3:
                region = live.pop(rng.randrange(len(live)))
                if (region.memory != index).any():
                    return "another thread wrote here"
                pool.give(region)
        if pool.used < sum(region.nbytes for region in live):
            return "regions in use are not counted"
        for region in live:
            pool.give(region)
        return "done"

    assert run_threads(work, 4) == ["done"] * 4
    assert pool.used == 0
    assert pool.release_free() > 0
    assert pool.total == 0
