"""The check of plans, on plans that break each of its rules."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_cases import requests_of, small_problems, training_step
from singa_lite.memory.check import check
from singa_lite.memory.planner import plan
from singa_lite.memory.problem import PlanError, Request

REQUESTS = requests_of((0, 4, 10), (2, 6, 20, 8), (4, 8, 10), (3, 7, 0))
GOOD = {"r0": 0, "r1": 16, "r2": 3, "r3": 5}


def test_a_good_plan_passes():
    check(REQUESTS, GOOD, 36)
    check([], {}, 0)


@pytest.mark.parametrize(
    ("change", "arena", "message"),
    [
        ({"r0": 7}, 36, "overlap: wanted 'r0' and 'r1' apart, received both at bytes 16 to 17; 'r0' has bytes 7 to 17"),
        ({"r2": 7}, 36, "overlap: wanted 'r1' and 'r2' apart, .*'r2' has bytes 7 to 17 in steps 4 to 8"),
        ({"r2": 20}, 36, "overlap: wanted 'r1' and 'r2' apart, received both at bytes 20 to 30"),
        ({"r1": 17}, 40, "alignment: wanted 'r1' at a multiple of 8 bytes, received offset 17"),
        ({}, 35, "bounds: wanted 'r1' within the arena of 35 bytes, received bytes 16 to 36"),
        ({"r2": -1}, 36, "bounds: wanted 'r2' within .* received bytes -1 to 9"),
        ({"r3": 37}, 36, "bounds: wanted 'r3' within"),
        ({"r9": 0}, 36, "ids: wanted offsets of requests only, received one for 'r9'"),
    ],
)
def test_a_bad_plan_is_refused_by_name(change, arena, message):
    with pytest.raises(PlanError, match=f"^{message}"):
        check(REQUESTS, GOOD | change, arena)


def test_a_plan_that_lacks_offsets_is_refused():
    with pytest.raises(PlanError, match=r"received none for 'r0', 'r1', 'r2' and 1 more$"):
        check(REQUESTS, {}, 36)


def test_two_requests_of_one_id_are_refused():
    with pytest.raises(PlanError, match="several for 'a'"):
        check([Request("a", 0, 1, 4), Request("a", 3, 4, 4)], {"a": 0}, 4)


@given(small_problems(most=8), st.data())
def test_it_refuses_just_what_comparing_all_pairs_refuses(requests, data):
    most = max((request.size for request in requests), default=0)
    offsets = {
        request.id: data.draw(st.integers(0, 2)) * most // request.alignment * request.alignment for request in requests
    }
    shared = any(
        a.start < b.stop
        and b.start < a.stop
        and offsets[a.id] < offsets[b.id] + b.size
        and offsets[b.id] < offsets[a.id] + a.size
        and a.size
        and b.size
        for number, a in enumerate(requests)
        for b in requests[:number]
    )
    if shared:
        with pytest.raises(PlanError, match="overlap"):
            check(requests, offsets, 4 * most)
    else:
        check(requests, offsets, 4 * most)


def test_one_wrong_offset_among_thousands_is_found():
    requests = training_step(3_000, seed=8)
    result = plan(requests)
    check(requests, result.offsets, result.arena)
    draw, found = random.Random(0), 0
    for request in draw.sample(requests, 20):
        moved = result.offsets | {request.id: max(result.offsets[request.id] - 64, 0)}
        others = [
            other
            for other in requests
            if other is not request
            and other.start < request.stop
            and request.start < other.stop
            and moved[other.id] < moved[request.id] + request.size
            and moved[request.id] < moved[other.id] + other.size
        ]
        if others:
            found += 1
            with pytest.raises(PlanError, match="overlap"):
                check(requests, moved, result.arena)
        else:
            check(requests, moved, result.arena)
    assert found > 5
