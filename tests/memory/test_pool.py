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

from singa_lite.memory import pool as pool_module
from singa_lite.memory import segment, segments
from singa_lite.memory.pool import ALIGNMENT, Bytes, OutOfMemoryError, Pool, Region, aligned_memory

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


def take_row(pool: Pool, *sizes: int) -> list[Region]:
    """Regions in a row in one segment, each followed by a small one that keeps it from the next."""
    regions = [(pool.take(size), pool.take(ALIGNMENT))[0] for size in sizes]
    assert sorted(regions, key=address) == regions
    return regions


def numbers(pool: Pool) -> tuple[int, int, int, int]:
    return pool.used, pool.free, pool.total, pool.high_water


# Regions


@pytest.mark.parametrize(
    ("nbytes", "rounded"),
    [(0, 64), (1, 64), (64, 64), (65, 128), (1000, 1024), (MIB - 1, MIB), (3 * MIB + 1, 3 * MIB + 64)],
)
def test_region_is_rounded_and_aligned(nbytes: int, rounded: int) -> None:
    pool = Pool()
    for region in (pool.take(nbytes), pool.take(nbytes)):
        assert region.nbytes == rounded
        assert region.memory.dtype == np.uint8
        assert region.memory.shape == (rounded,)
        assert region.memory.flags.writeable
        assert address(region) % ALIGNMENT == 0
    assert pool.used == 2 * rounded


def test_negative_size() -> None:
    pool = Pool()
    with pytest.raises(ValueError, match=r"wanted 0 or more bytes.* received -3"):
        pool.take(-3)
    assert numbers(pool) == (0, 0, 0, 0)


def test_small_requests_share_a_segment_and_large_ones_get_their_own_size() -> None:
    source = Source()
    pool = Pool(source=source)
    first, second = pool.take(100), pool.take(200)
    assert address(second) == address(first) + 128
    for nbytes in (3 * SHARED, SHARED, MIB, 3 * MIB + 1):  # of which the first fits into the shared one
        pool.take(nbytes)
    assert source.asked == [MIB, SHARED, MIB, 3 * MIB + 64]


# Placement


def test_best_fit_takes_the_smallest_piece_that_is_large_enough() -> None:
    pool = Pool()
    big, small, middle = regions = take_row(pool, 640, 256, 384)
    for region in regions:
        pool.give(region)
    assert address(pool.take(200)) == address(small)
    assert address(pool.take(384)) == address(middle)
    assert address(pool.take(300)) == address(big)


def test_equal_pieces_are_taken_in_order_of_segment_and_offset() -> None:
    source = Source()
    pool = Pool(source=source)
    first = take_row(pool, 256, 256)
    pool.take(pool.free)  # what is left of the first segment
    second = take_row(pool, 256)
    assert len(source.asked) == 2
    for region in reversed(first + second):
        pool.give(region)
    assert [address(pool.take(256)) for _ in range(3)] == [address(region) for region in first + second]


def test_what_is_left_of_a_piece_stays_free() -> None:
    pool = Pool()
    (region,) = take_row(pool, 640)
    pool.give(region)
    assert address(pool.take(100)) == address(region)
    assert address(pool.take(640 - 128)) == address(region) + 128


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_neighbors_merge_in_whatever_order_they_are_given(order: tuple[int, ...]) -> None:
    pool = Pool()
    parts = [pool.take(nbytes) for nbytes in (128, 256, 64)]
    pool.take(64)
    for index in order:
        pool.give(parts[index])
    assert address(pool.take(128 + 256 + 64)) == address(parts[0])


def test_pieces_of_different_segments_do_not_merge() -> None:
    memory = aligned_memory(4 * MIB)
    asked: list[int] = []

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


def test_a_small_request_leaves_large_pieces_whole() -> None:
    source = Source()
    pool = Pool(source=source)
    large = pool.take(5 * MIB)
    pool.give(large)
    pool.take(100)
    assert address(pool.take(5 * MIB)) == address(large)
    assert source.asked == [5 * MIB, MIB]


def test_where_no_segment_is_to_be_had_each_kind_of_request_takes_pieces_of_the_other() -> None:
    pool = Pool(limit=3 * MIB)
    shared, large = [pool.take(SHARED - 64) for _ in range(4)], pool.take(2 * MIB)
    pool.take(256)
    pool.give(large)
    assert address(pool.take(100)) == address(large)
    for region in shared:
        pool.give(region)
    for nbytes in (MIB, MIB - 128):
        pool.take(nbytes)  # beside the small one
    assert address(pool.take(MIB - 256)) == address(shared[0])
    assert pool.total == 3 * MIB


# Limit and failure


def test_limit_bounds_what_is_held_and_can_be_used_up() -> None:
    pool = Pool(limit=MIB + 1000)
    pool.take(MIB - 64)
    pool.take(64)
    pool.take(900)  # from a shared segment of 960 bytes
    assert numbers(pool) == (MIB + 960, 0, MIB + 960, MIB + 960)
    with pytest.raises(OutOfMemoryError):
        pool.take(1)


def test_failure_names_the_bytes_and_leaves_the_pool_as_it_was() -> None:
    source = Source()
    pool = Pool(limit=4 * MIB, source=source)
    large, small = pool.take(2 * MIB), pool.take(1000)
    pool.give(pool.take(MIB))
    before = numbers(pool)
    with pytest.raises(OutOfMemoryError) as caught:
        pool.take(3_000_000)
    error = caught.value
    assert (error.asked, error.used, error.free, error.limit) == (3_000_000, 2098176, 2096128, 4194304)
    for number in ("3000000 bytes (2.9 MiB)", "4194304 bytes (4.0 MiB)", "2098176 bytes", "2096128 bytes"):
        assert number in str(error)
    assert "limit: 4194304 bytes" in str(error)
    assert "too small" not in str(error)
    assert numbers(pool) == before
    assert pool.take(MIB).nbytes == MIB
    assert source.asked == [2 * MIB, MIB, MIB]
    pool.give(large)
    pool.give(small)
    assert pool.used == MIB


def test_failure_says_when_the_free_bytes_are_scattered() -> None:
    pool = Pool(limit=1024)
    regions = [pool.take(256) for _ in range(4)]
    for region in regions[::2]:
        pool.give(region)
    with pytest.raises(OutOfMemoryError, match=r"512 bytes free in pieces too small for it") as caught:
        pool.take(512)
    assert caught.value.free == 512
    pool.give(regions[1])
    assert address(pool.take(768)) == address(regions[0])
    with pytest.raises(OutOfMemoryError, match=r"wanted 0 bytes .* 0 bytes free\), received none"):
        pool.take(0)


def test_failure_survives_pickling() -> None:
    error = OutOfMemoryError(7, 64, 0, None)
    again = pickle.loads(pickle.dumps(error))
    assert (again.asked, again.used, again.free, again.limit) == (7, 64, 0, None)
    assert str(again) == str(error)
    assert str(error).endswith("limit: none")
    assert isinstance(error, MemoryError)


def test_unused_segments_are_released_to_stay_within_the_limit() -> None:
    source = Source()
    pool = Pool(limit=5 * MIB, source=source)
    kept = pool.take(MIB)
    for region in [pool.take(MIB), pool.take(2 * MIB)]:
        pool.give(region)
    del region
    pool.take(4 * MIB)
    assert (pool.total, source.held) == (5 * MIB, 5 * MIB)
    assert kept.nbytes == MIB


def test_unused_segments_are_returned_before_a_source_that_refused_is_asked_again() -> None:
    source = Source(most=5 * MIB)
    pool = Pool(source=source)
    pool.take(MIB)
    pool.give(pool.take(3 * MIB))
    pool.take(4 * MIB)
    assert numbers(pool) == (5 * MIB, 0, 5 * MIB, 5 * MIB)
    assert source.held == 5 * MIB


def test_source_that_keeps_refusing() -> None:
    source = Source(most=5 * MIB)
    pool = Pool(source=source)
    region = pool.take(2 * MIB)
    pool.give(pool.take(MIB))
    with pytest.raises(OutOfMemoryError, match=r"wanted 6291456 bytes.*limit: none") as caught:
        pool.take(6 * MIB)
    assert str(caught.value.__cause__) == f"the source has {5 * MIB} bytes"
    assert (caught.value.used, caught.value.limit) == (2 * MIB, None)
    assert (pool.used, pool.total, source.held) == (2 * MIB, 2 * MIB, 2 * MIB)
    assert pool.take(3 * MIB).nbytes == 3 * MIB
    pool.give(region)


@pytest.mark.parametrize("nbytes", [1 << 62, 1 << 63, 1 << 70])
def test_more_than_the_system_has(nbytes: int) -> None:
    pool = Pool()
    with pytest.raises(OutOfMemoryError, match=f"wanted {nbytes} bytes"):
        pool.take(nbytes)
    assert numbers(pool) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("memory", "received"),
    [
        (aligned_memory(MIB - 64), r"uint8 of shape \(1048512,\)"),
        (aligned_memory(MIB).view(np.int8), r"int8 of shape \(1048576,\)"),
        (aligned_memory(MIB).reshape(2, -1), r"uint8 of shape \(2, 524288\)"),
        (aligned_memory(2 * MIB)[::2], r"uint8 of shape \(1048576,\)"),
        (aligned_memory(MIB + 64)[5 : MIB + 5], "5 bytes past alignment"),
        (np.frombuffer(aligned_memory(MIB).data.toreadonly(), np.uint8), "uint8"),
    ],
)
def test_source_that_breaks_its_promise(memory: Bytes, received: str) -> None:
    pool = Pool(source=lambda nbytes: memory)
    with pytest.raises(ValueError, match=f"wanted 1048576 writable bytes.* received .*{received}"):
        pool.take(100)
    assert numbers(pool) == (0, 0, 0, 0)


def test_dead_tensors_in_cycles_are_collected_before_failing() -> None:
    pool = Pool(limit=3 * MIB)
    gc.disable()
    try:
        Tensor(pool, 2 * MIB)
        assert pool.used == 2 * MIB
        assert pool.take(3 * MIB).nbytes == 3 * MIB
    finally:
        gc.enable()


# Giving


def test_giving_twice_is_an_error() -> None:
    pool = Pool()
    region, other = pool.take(1000), pool.take(64)
    pool.give(region)
    with pytest.raises(ValueError, match=r"wanted a region in use.* received one of 1024 bytes"):
        pool.give(region)
    again = pool.take(1000)
    assert address(again) == address(region)
    with pytest.raises(ValueError, match="1024 bytes"):
        pool.give(region)  # its memory is in use, but by another
    assert pool.used == 1024 + other.nbytes


def test_giving_to_another_pool_is_an_error() -> None:
    pool, other = Pool(), Pool()
    other.checked = True
    region = pool.take(2 * MIB)
    region.memory.fill(7)
    with pytest.raises(ValueError, match="another pool's") as caught:
        other.give(region)
    assert "2097152 bytes" in str(caught.value)
    assert (region.memory == 7).all()
    assert (pool.used, other.used) == (2 * MIB, 0)
    pool.give(region)
    assert pool.used == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_checked_pool_fills_given_memory_with_nan(dtype: type[np.floating[Any]]) -> None:
    pool = Pool()
    pool.checked = True
    left, region, right = pool.take(64), pool.take(320), pool.take(64)
    for each in (left, region, right):
        each.memory.fill(1)
    stale = region.memory.view(dtype)
    pool.give(region)
    assert np.isnan(stale).all()
    assert (left.memory == 1).all()
    assert (right.memory == 1).all()


def test_unchecked_pool_leaves_given_memory_alone() -> None:
    pool = Pool()
    region = pool.take(320)
    region.memory.fill(1)
    pool.give(region)
    assert (region.memory == 1).all()


# Numbers


def test_numbers_follow_takes_and_gives() -> None:
    pool = Pool()
    assert (numbers(pool), pool.limit) == ((0, 0, 0, 0), None)
    small = pool.take(1000)
    assert numbers(pool) == (1024, MIB - 1024, MIB, 1024)
    large = pool.take(3 * MIB)
    assert numbers(pool) == (3 * MIB + 1024, MIB - 1024, 4 * MIB, 3 * MIB + 1024)
    pool.give(large)
    assert numbers(pool) == (1024, 4 * MIB - 1024, 4 * MIB, 3 * MIB + 1024)
    pool.reset_high_water()
    assert pool.high_water == 1024
    pool.give(small)
    assert pool.free == 4 * MIB
    pool.take(64)
    assert pool.high_water == 1024
    pool.take(2 * MIB)
    assert pool.high_water == 2 * MIB + 64


def test_repr_says_the_numbers() -> None:
    pool = Pool(limit=3 * MIB)
    pool.give(pool.take(2000))
    pool.take(1000)
    text = repr(pool)
    assert "1024 bytes used, 1047552 bytes free, high water: 2048 bytes" in text
    assert "limit: 3145728 bytes (3.0 MiB)" in text
    assert "limit: none" in repr(Pool())


def test_release_free_returns_wholly_free_segments_only() -> None:
    source = Source()
    pool = Pool(source=source)
    assert pool.release_free() == 0
    small, large = pool.take(100), pool.take(2 * MIB)
    pool.take(3 * MIB)
    pool.give(large)
    del large
    assert pool.release_free() == 2 * MIB
    assert (pool.used, pool.total, source.held) == (3 * MIB + 128, 4 * MIB, 4 * MIB)
    pool.give(small)
    assert pool.release_free() == MIB
    assert pool.release_free() == 0
    assert (pool.used, pool.free) == (3 * MIB, 0)


def test_memory_returns_when_the_pool_dies() -> None:
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


def test_set_limit() -> None:
    pool = Pool(limit=2 * MIB)
    pool.take(MIB)
    region = pool.take(1000)
    with pytest.raises(ValueError, match=r"wanted a limit of at least the 1049600 bytes.* received 1049599"):
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
    assert pool.limit is None
    assert pool.total == 6 * MIB
    with pytest.raises(ValueError, match="received -1"):
        Pool(limit=-1)


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
def test_placement_is_that_of_the_model(steps: list[tuple[str, int]]) -> None:
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
def test_limited_pool_fails_exactly_where_the_model_does(steps: list[tuple[str, int]], limit: int) -> None:
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


def test_source_may_give_and_read_numbers_during_take() -> None:
    seen: list[tuple[int, int, int, str]] = []

    def source(nbytes: int) -> Bytes:
        while victims:
            pool.give(victims.pop())
            seen.append((pool.used, pool.free, pool.total, repr(pool)))
        return aligned_memory(nbytes)

    victims: list[Region] = []
    pool = Pool(source=source)
    first, second = pool.take(1000), pool.take(640)
    victims += [first, second]
    pool.take(2 * MIB)
    assert len(seen) == 2
    assert pool.used == 2 * MIB
    assert address(pool.take(1664)) == address(first)
    with pytest.raises(ValueError, match="640 bytes"):
        pool.give(second)


@pytest.mark.parametrize("call", [lambda pool: pool.take(100), Pool.release_free], ids=["take", "release"])
def test_source_may_not_change_the_pool(call: Callable[[Pool], object]) -> None:
    calls = [call]

    def source(nbytes: int) -> Bytes:
        while calls:
            calls.pop()(pool)
        return aligned_memory(nbytes)

    pool = Pool(source=source)
    with pytest.raises(RuntimeError, match="wanted a pool at rest, received a call from its source"):
        pool.take(2 * MIB)
    assert numbers(pool) == (0, 0, 0, 0)
    assert pool.take(2 * MIB).nbytes == 2 * MIB


POOL_FILES = {module.__file__ for module in (pool_module, segment, segments)}


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
def test_give_before_any_line_of_take(nbytes: int) -> None:
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


def test_collector_that_runs_all_the_time() -> None:
    pool = Pool(limit=4 * MIB)
    rng = random.Random(3)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(300):
            Tensor(pool, rng.randrange(200_000))
            assert pool.take(0) is not None
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert pool.used == 300 * 64


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
def test_threads_share_a_pool() -> None:
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


@pytest.mark.usefixtures("hasty_threads")
def test_of_two_threads_that_give_the_same_region_one_fails() -> None:
    pool = Pool()
    regions = [pool.take(64) for _ in range(3000)]
    barrier = threading.Barrier(3)

    def work(index: int) -> int:
        given = 0
        barrier.wait(10)
        for region in regions:
            try:
                pool.give(region)
                given += 1
            except ValueError:
                pass
        return given

    assert sum(run_threads(work, 3)) == 3000
    assert pool.used == 0
