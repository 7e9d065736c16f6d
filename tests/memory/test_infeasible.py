"""Why a capacity does not suffice: sets from which no request can be left out."""

from __future__ import annotations

import pytest
from hypothesis import assume, given

from placement_cases import KNOWN, cut_rectangle, requests_of, small_problems, smallest_arena, training_step
from singa_lite.memory.infeasible import conflict_set
from singa_lite.memory.planner import plan
from singa_lite.memory.problem import CapacityError, PlanError, Request, floor

HARD, ARENA = KNOWN["above its floor of 5"]


@given(small_problems())
def test_the_set_does_not_fit_but_without_any_one_it_does(requests):
    arena = smallest_arena(requests)
    assume(arena > 0)
    found = conflict_set(requests, arena - 1)
    assert found.irreducible
    assert smallest_arena(found.requests) >= arena
    for number in range(len(found.requests)):
        assert smallest_arena(found.requests[:number] + found.requests[number + 1 :]) < arena


@pytest.mark.parametrize(
    ("rows", "capacity", "ids", "step"),
    [
        (((0, 9, 10), (1, 3, 30), (2, 4, 45), (2, 3, 5), (5, 8, 40), (6, 7, 60), (6, 8, 7)), 80, ["r4", "r5"], 6),
        (((0, 3, 10), (1, 2, 90), (5, 6, 100)), 95, ["r2"], 5),
    ],
    ids=["the fewest of one step", "one that is too large"],
)
def test_a_load_that_is_too_much(rows, capacity, ids, step):
    found = conflict_set(requests_of(*rows), capacity)
    assert ([request.id for request in found.requests], found.irreducible, found.step) == (ids, True, step)


@pytest.mark.parametrize("name", ["above its floor of 5", "above its floor of 8"])
def test_a_set_that_no_single_step_explains(name):
    hard, arena = KNOWN[name]
    noise = [Request(f"noise{k}", 20 + k, 23 + k, 1) for k in range(9)]
    mixed = [*noise[:4], *hard, *noise[4:]]
    assert floor(mixed) < arena
    found = conflict_set(mixed, arena - 1)
    assert (found.requests, found.irreducible, found.step) == (tuple(hard), True, None)
    assert conflict_set(mixed, arena - 1, proved=True) == found


def test_the_set_of_a_whole_step_is_small():
    requests = training_step(2_000, seed=6)
    capacity = floor(requests) // 3
    found = conflict_set(requests, capacity)
    assert found.irreducible
    assert sum(request.size for request in found.requests[1:]) <= capacity < sum(r.size for r in found.requests)
    assert all(request.start <= found.step < request.stop for request in found.requests)


def test_what_is_no_such_capacity_or_is_not_decided_is_told():
    with pytest.raises(PlanError, match=f"{ARENA} bytes"):
        conflict_set(HARD, ARENA)
    with pytest.raises(CapacityError, match="may be"):
        conflict_set(cut_rectangle(200, seed=0), 512, seconds=0.0)
    found = conflict_set(HARD, ARENA - 1, proved=True, nodes=0)
    assert not found.irreducible
    with pytest.raises(CapacityError, match="proved"):
        plan(found.requests, capacity=ARENA - 1)
