"""Instructions whose results nobody uses vanish, and no others do."""

from __future__ import annotations

import pytest
from hypothesis import given

from programs import (
    Call,
    add,
    assert_same,
    call,
    clip,
    copy,
    double,
    draw,
    dropout,
    fill,
    normed,
    numbers,
    part,
    program,
    random_programs,
    relu,
    thorough,
    update,
    whole,
)
from singa_lite.passes.dead import without_dead
from singa_lite.passes.program import Program

INPUT, RESULT = whole(0, 3, 4), whole(1, 3, 4)
A, B, C = (whole(number, 3, 4) for number in (10, 11, 12))
STATE, KEY, NORM, WEIGHT = whole(2, 3, dtype="u8"), whole(13, 3, dtype="u8"), whole(14, 3), whole(3, 4, 4)
UPPER, LOWER = (relu(part(INPUT, 0, start, stop), part(A, 0, start, stop)) for start, stop in ((0, 1), (1, 3)))

#: (calls, numbers of those that stay).
CASES: dict[str, tuple[list[Call], list[int]]] = {
    "a chain that leads nowhere": ([relu(INPUT, RESULT), relu(INPUT, A), double(A, B), add(A, B, C)], [0]),
    "what a held block needs, however far back": (
        [relu(INPUT, A), double(INPUT, C), double(A, B), copy(B, RESULT)],
        [0, 2, 3],
    ),
    "no results": ([relu(INPUT, A), relu(A, B)], []),
    "an update of a held block": ([relu(INPUT, A), update(A, RESULT), clip(RESULT)], [0, 1, 2]),
    "a random state moves on": ([draw(STATE, KEY), dropout(INPUT, KEY, A)], [0]),
    "an update that nobody reads later": ([relu(INPUT, A), clip(A), copy(A, RESULT), clip(A)], [0, 1, 2]),
    "one used output of two": ([relu(INPUT, A), normed(A, B, NORM), copy(NORM, whole(4, 3))], [0, 1, 2]),
    "a write after the last read": ([fill(A), double(A, RESULT), fill(A, 7.0)], [0, 1]),
    "all pieces of a block in use": ([UPPER, LOWER, copy(A, RESULT)], [0, 1, 2]),
    "an operand that is left out": (
        [call("linear", INPUT, WEIGHT, None, RESULT), call("linear", INPUT, WEIGHT, None, A)],
        [0],
    ),
}


@pytest.mark.parametrize(("calls", "stay"), CASES.values(), ids=CASES)
def test_what_nobody_uses_vanishes(calls, stay):
    assert numbers(without_dead(program(*calls, held=range(5)))) == stay


@thorough
@given(random_programs)
def test_results_of_random_programs_do_not_change(made: Program):
    lean = without_dead(made)
    assert_same(made, lean)
    assert without_dead(lean) == lean
