"""plan(): the smallest arena, proofs, capacities and limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from placement_cases import KNOWN, cut_rectangle, requests_of, small_problems, smallest_arena, training_step
from singa_lite.memory.check import check
from singa_lite.memory.planner import plan
from singa_lite.memory.problem import CapacityError, PlanError, Request, floor


@pytest.mark.parametrize("name", KNOWN)
def test_known_answers(name):
    requests, arena = KNOWN[name]
    result = plan(requests)
    check(requests, result.offsets, result.arena)
    assert (result.arena, result.proved, result.floor) == (arena, True, floor(requests))


@given(small_problems())
@settings(max_examples=200)
def test_the_arena_is_the_smallest_and_proved(requests):
    result = plan(requests)
    check(requests, result.offsets, result.arena)
    assert result.arena == smallest_arena(requests)
    assert result.proved
    assert list(result.offsets) == [request.id for request in requests]


@given(small_problems())
def test_a_capacity_is_enough_or_proved_not_to_be(requests):
    arena = smallest_arena(requests)
    result = plan(requests, capacity=arena)
    check(requests, result.offsets, result.arena)
    assert result.arena <= arena
    if arena:
        with pytest.raises(CapacityError, match="proved that there is none") as caught:
            plan(requests, capacity=arena - 1)
        assert caught.value.proved
        check(requests, caught.value.best.offsets, caught.value.best.arena)


def test_nothing_to_place():
    assert (plan([]).arena, plan([]).proved, plan([]).offsets) == (0, True, {})
    empty = plan(requests_of((0, 4, 0), (1, 2, 0, 64)), capacity=0)
    assert (empty.arena, empty.floor, empty.offsets) == (0, 0, {"r0": 0, "r1": 0})


def test_requests_of_no_bytes_lie_anywhere_without_harm():
    requests = requests_of((0, 4, 10), (1, 3, 0), (1, 3, 5))
    result = plan(requests)
    check(requests, result.offsets, result.arena)
    assert result.arena == 15


def test_ids_that_are_not_unique_are_refused():
    with pytest.raises(PlanError, match="several for 'a'"):
        plan([Request("a", 0, 1, 4), Request("a", 2, 3, 4)])


@pytest.mark.parametrize("limits", [{"capacity": -1}, {"seconds": -0.5}, {"seconds": float("nan")}, {"nodes": -1}])
def test_limits_below_zero_are_refused(limits):
    with pytest.raises(PlanError, match=f"wanted .*{next(iter(limits))}.* of 0 or more"):
        plan(requests_of((0, 1, 4)), **limits)


@pytest.mark.parametrize("seed", range(3))
def test_a_training_step_is_planned_at_its_floor(seed):
    requests = training_step(1_500, seed)
    result = plan(requests)
    check(requests, result.offsets, result.arena)
    assert result.arena == result.floor == floor(requests)
    assert result.proved


def test_search_closes_the_gap_that_greedy_leaves():
    requests = cut_rectangle(80, seed=3)
    greedy = plan(requests, nodes=0)
    assert greedy.arena > greedy.floor and not greedy.proved and greedy.method.startswith("greedy by")
    found = plan(requests)
    check(requests, found.offsets, found.arena)
    assert (found.arena, found.proved, found.method) == (512, True, "search")


def test_the_search_is_repeatable_and_keeps_the_best_when_its_nodes_are_used_up():
    requests = cut_rectangle(150, seed=9)
    first, second = (plan(requests, nodes=4_000, seconds=1e6) for _ in range(2))
    assert (first.offsets, first.arena) == (second.offsets, second.arena)
    check(requests, first.offsets, first.arena)
    assert first.arena <= plan(requests, nodes=0).arena


def test_no_time_still_gives_a_plan():
    requests = training_step(500, seed=0)
    result = plan(requests, seconds=0.0)
    check(requests, result.offsets, result.arena)


def test_a_capacity_not_decided_within_the_limits_is_said_to_be_unknown():
    requests = cut_rectangle(150, seed=9)
    with pytest.raises(CapacityError, match="found none within the limit, though there may be one") as caught:
        plan(requests, capacity=512, nodes=100)
    assert not caught.value.proved
    assert caught.value.best.arena > 512


def test_parts_apart_in_time_are_placed_apart():
    """The hard part decides; the easy one next to it may take what that needs."""
    hard, arena = KNOWN["above its floor of 5"]
    easy = requests_of((20, 22, 3), (21, 24, 3))
    both = [*hard, *(Request(f"easy {request.id}", request.start, request.stop, request.size) for request in easy)]
    result = plan(both)
    check(both, result.offsets, result.arena)
    assert (result.arena, result.floor, result.proved) == (arena, 6, True)
    with pytest.raises(CapacityError, match="proved"):
        plan(hard, capacity=5)


def test_sizes_that_are_no_multiples_of_their_alignment():
    requests = requests_of((0, 2, 100, 64), (1, 3, 10, 64), (0, 3, 70, 64))
    result = plan(requests)
    check(requests, result.offsets, result.arena)
    assert (result.arena, result.floor, result.proved) == (128 + 64 + 70,) * 2 + (True,)


@pytest.mark.parametrize("factor", [1, 2**40, 2**62 + 1])
def test_bytes_beyond_64_bits(factor):
    requests = requests_of(*((k, k + 3, (7 + k % 5) * factor + 1) for k in range(12)))
    result = plan(requests)
    check(requests, result.offsets, result.arena)
    assert result.arena == result.floor
