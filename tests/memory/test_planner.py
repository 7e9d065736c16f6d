"""plan(): the smallest arena, proofs, capacities and limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from placement_cases import KNOWN, cut_rectangle, requests_of, small_problems, smallest_arena, training_step
from singa_lite.memory.check import check
from singa_lite.memory.planner import plan
from singa_lite.memory.problem import CapacityError, PlanError, Request, floor


def planned(requests, **limits):
    """The plan, checked."""
    result = plan(requests, **limits)
    check(requests, result.offsets, result.arena)
    return result


HARD, ARENA = KNOWN["above its floor of 5"]
STEP = training_step(1_500, 0)
HUGE = requests_of(*((k, k + 3, (7 + k % 5) * (2**62 + 1) + 1) for k in range(12)))
#: Name: requests, arena.
CASES = {
    **KNOWN,
    "nothing": ([], 0),
    "no bytes": (requests_of((0, 4, 0), (1, 2, 0, 64)), 0),
    "some of no bytes": (requests_of((0, 4, 10), (1, 3, 0), (1, 3, 5)), 15),
    "sizes that are no multiples": (requests_of((0, 2, 100, 64), (1, 3, 10, 64), (0, 3, 70, 64)), 128 + 64 + 70),
    # The hard part decides; the easy one next to it may take what that needs.
    "parts apart in time": ([*HARD, Request("a", 20, 22, 3), Request("b", 21, 24, 3)], ARENA),
    "a training step": (STEP, floor(STEP)),
    "beyond 64 bits": (HUGE, floor(HUGE)),
}


@pytest.mark.parametrize("name", CASES)
def test_known_answers(name):
    requests, arena = CASES[name]
    result = planned(requests)
    assert (result.arena, result.proved, result.floor) == (arena, True, floor(requests))


@given(small_problems())
@settings(max_examples=150)
def test_the_arena_is_the_smallest_and_a_capacity_is_enough_or_proved_not_to_be(requests):
    arena = smallest_arena(requests)
    result = planned(requests)
    assert (result.arena, result.proved) == (arena, True)
    assert list(result.offsets) == [request.id for request in requests]
    assert planned(requests, capacity=arena).arena <= arena
    if arena:
        with pytest.raises(CapacityError) as caught:
            plan(requests, capacity=arena - 1)
        assert caught.value.proved
        check(requests, caught.value.best.offsets, caught.value.best.arena)


def test_ids_that_are_not_unique_and_limits_below_zero_are_refused():
    with pytest.raises(PlanError, match="'a'"):
        plan([Request("a", 0, 1, 4), Request("a", 2, 3, 4)])
    for name, value in (("capacity", -1), ("seconds", -0.5), ("seconds", float("nan")), ("nodes", -1)):
        with pytest.raises(PlanError, match=name):
            plan(requests_of((0, 1, 4)), **{name: value})


def test_search_closes_the_gap_that_greedy_leaves():
    requests = cut_rectangle(80, seed=3)
    greedy = plan(requests, nodes=0)
    assert greedy.arena > greedy.floor and not greedy.proved and greedy.method.startswith("greedy by")
    found = planned(requests)
    assert (found.arena, found.proved, found.method) == (512, True, "search")


def test_the_search_is_repeatable_and_keeps_the_best_when_its_limits_are_used_up():
    requests = cut_rectangle(150, seed=9)
    first, second = (planned(requests, nodes=4_000, seconds=1e6) for _ in range(2))
    assert (first.offsets, first.arena) == (second.offsets, second.arena)
    assert first.arena <= planned(requests, nodes=0).arena
    planned(training_step(500, seed=0), seconds=0.0)
    with pytest.raises(CapacityError, match="may be") as caught:
        plan(requests, capacity=512, nodes=100)
    assert not caught.value.proved
    assert caught.value.best.arena > 512
