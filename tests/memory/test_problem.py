"""Requests, the profile of live bytes, and the floor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from placement_cases import requests_of, small_problems, smallest_arena
from singa_lite.memory.problem import PlanError, Request, floor, granule, live_at, profile


@pytest.mark.parametrize(
    ("start", "stop", "size", "alignment", "message"),
    [
        (3, 3, 8, 1, "3 to 3"),
        (5, 2, 8, 1, "5 to 2"),
        (-1, 2, 8, 1, "-1 to 2"),
        (0, 1, -8, 1, "size -8"),
        (0, 1, 8, 0, "alignment 0"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(start, stop, size, alignment, message):
    with pytest.raises(PlanError, match=f"'x': .*{message}"):
        Request("x", start, stop, size, alignment)


def test_numbers_become_whole_numbers_of_python():
    request = Request("x", np.int32(1), np.int64(2), np.uint64(2**63), np.int8(4))
    assert request == Request("x", 1, 2, 2**63, 4)
    assert all(type(value) is int for value in (request.start, request.stop, request.size, request.alignment))
    with pytest.raises(TypeError):
        Request("x", 0, 1, 2.5)


def test_the_profile_counts_live_bytes_from_step_to_step():
    requests = requests_of((2, 5, 7), (4, 9, 30), (5, 6, 100), (12, 13, 1))
    assert profile(requests) == [(2, 7), (4, 37), (5, 130), (6, 30), (9, 0), (12, 1), (13, 0)]
    assert profile([]) == []
    assert [request.id for request in live_at(requests, 4)] == ["r0", "r1"]
    assert live_at(requests, 9) == []


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ((), 0),
        (((0, 9, 0),), 0),
        (((0, 2, 3), (2, 4, 5), (1, 3, 10)), 15),  # 3 + 10 in step 1, 10 + 5 in step 2
        (((0, 1, 10, 8), (0, 1, 10, 8)), 26),  # 16 and, on top, 10
        (((0, 1, 16, 8), (0, 1, 9, 8), (0, 1, 8, 8)), 16 + 8 + 9),  # the 9 bytes on top
        (((0, 1, 10, 8), (0, 1, 10, 4)), 12 + 10),  # 4 is what all offsets are multiples of
        (((0, 1, 10, 64), (0, 1, 10, 1)), 20),  # nothing is known of all offsets
        (((0, 1, 2**70), (0, 1, 1)), 2**70 + 1),
    ],
)
def test_floor(rows, wanted):
    assert floor(requests_of(*rows)) == wanted


@given(small_problems(most=5))
def test_no_arena_is_below_the_floor(requests):
    assert floor(requests) <= smallest_arena(requests)


def test_the_granule_divides_all_alignments():
    assert granule(requests_of((0, 1, 5, 12), (3, 4, 6, 18))) == 6
    assert granule([]) == 1
