"""What gives bytes back is done as soon as it can be: the same results, and fewer bytes beside what lies between."""

from __future__ import annotations

from hypothesis import given

from programs import add, assert_same, copy, double, numbers, program, random_programs, tanh, thorough, update, whole
from singa_lite.passes.early import done_early
from singa_lite.passes.in_place import in_place
from singa_lite.passes.program import Program, floor, live_bytes
from singa_lite.passes.read_from import check_reads

INPUT, RESULT, WEIGHT, OTHER = whole(0, 5, 7), whole(1, 5, 7), whole(2, 5, 7), whole(3, 5, 7)
A, B, C, D = (whole(number, 5, 7) for number in range(10, 14))
HELD = [0, 1, 2, 3]


def step(*between: object) -> Program:
    """Two values, then what stands between, then their sum."""
    return program(double(INPUT, A), tanh(INPUT, B), *between, add(A, B, C), copy(C, RESULT), held=HELD)  # type: ignore[arg-type]


def test_a_sum_goes_behind_the_later_of_its_summands():
    given = step(tanh(OTHER, D), update(D, WEIGHT))
    made = done_early(given)
    assert numbers(made) == [0, 1, 4, 2, 3, 5]
    assert max(live_bytes(in_place(made))[3:5]) < max(live_bytes(in_place(given))[2:4])
    assert_same(given, made)


def test_what_is_read_between_gives_nothing_back_and_stays():
    given = step(copy(A, whole(3, 5, 7)), copy(B, whole(3, 5, 7)))
    assert done_early(given) is given


def test_nothing_between_nothing_moved():
    given = step()
    assert done_early(given) is given


@thorough
@given(random_programs)
def test_random_programs_keep_their_results_and_never_need_more(made: Program):
    early = done_early(made)
    check_reads(made, early, {})
    assert_same(made, early)
    assert floor(in_place(early)) <= floor(in_place(made))
