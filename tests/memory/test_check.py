"""The check of plans, on plans that break each of its rules."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_cases import requests_of, small_problems, training_step
from singa_lite.memory.check import check
from singa_lite.memory.planner import plan
from singa_lite.memory.problem import PlanError, Request

REQUESTS = requests_of((0, 4, 10), (2, 6, 20, 8), (4, 8, 10), (3, 7, 0))
GOOD = {"r0": 0, "r1": 16, "r2": 3, "r3": 5}


def overlap(one: Request, other: Request, offsets: dict[str, int]) -> bool:
    return bool(
        one.start < other.stop
        and other.start < one.stop
        and offsets[one.id] < offsets[other.id] + other.size
        and offsets[other.id] < offsets[one.id] + one.size
        and one.size
        and other.size
    )


def test_a_good_plan_passes():
    check(REQUESTS, GOOD, 36)
    check([], {}, 0)


@pytest.mark.parametrize(
    ("change", "arena", "message"),
    [
        ({"r0": 7}, 36, "overlap: .*'r0' and 'r1'.* 16 to 17"),
        ({"r2": 7}, 36, "overlap: .*'r1' and 'r2'.* steps 4 to 8"),
        ({"r2": 20}, 36, "overlap: .*'r1' and 'r2'.* 20 to 30"),
        ({"r1": 17}, 40, "alignment: .*'r1'.* 8 bytes.* 17"),
        ({}, 35, "bounds: .*'r1'.* 35 bytes.* 16 to 36"),
        ({"r2": -1}, 36, "bounds: .*'r2'.* -1 to 9"),
        ({"r3": 37}, 36, "bounds: .*'r3'"),
        ({"r9": 0}, 36, "ids: .*'r9'"),
    ],
)
def test_a_bad_plan_is_refused_by_name(change, arena, message):
    with pytest.raises(PlanError, match=f"^{message}"):
        check(REQUESTS, GOOD | change, arena)


def test_offsets_and_requests_are_of_the_same_ids():
    with pytest.raises(PlanError, match="'r0', 'r1', 'r2' and 1 more"):
        check(REQUESTS, {}, 36)
    with pytest.raises(PlanError, match="'a'"):
        check([Request("a", 0, 1, 4), Request("a", 3, 4, 4)], {"a": 0}, 4)


@given(small_problems(most=8), st.data())
def test_it_refuses_just_what_comparing_all_pairs_refuses(requests, data):
    most = max((request.size for request in requests), default=0)
    offsets = {one.id: data.draw(st.integers(0, 2)) * most // one.alignment * one.alignment for one in requests}
    if any(overlap(a, b, offsets) for a, b in combinations(requests, 2)):
        with pytest.raises(PlanError, match="overlap"):
            check(requests, offsets, 4 * most)
    else:
        check(requests, offsets, 4 * most)


def test_one_wrong_offset_among_thousands_is_found():
    requests = training_step(3_000, seed=8)
    result = plan(requests)
    check(requests, result.offsets, result.arena)
    found = 0
    for request in random.Random(0).sample(requests, 20):
        moved = result.offsets | {request.id: max(result.offsets[request.id] - 64, 0)}
        if any(overlap(request, other, moved) for other in requests if other is not request):
            found += 1
            with pytest.raises(PlanError, match="overlap"):
                check(requests, moved, result.arena)
        else:
            check(requests, moved, result.arena)
    assert found > 5
