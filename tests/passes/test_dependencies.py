"""Read after write, write after write, write after read."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given

from programs import (
    Call,
    add,
    call,
    clip,
    copy,
    double,
    draw,
    fill,
    instructions,
    part,
    random_programs,
    relu,
    reshaped,
    thorough,
    update,
    whole,
)
from singa_lite.passes.dependencies import ancestors, predecessors, successors
from singa_lite.passes.program import Program

INPUT, RESULT = whole(0, 3, 4), whole(1, 3, 4)
A, B, C = (whole(number, 3, 4) for number in (10, 11, 12))
STATE, KEY, OTHER = (whole(number, 3, dtype="u8") for number in (2, 13, 14))

#: (calls, what each follows).
CASES: dict[str, tuple[list[Call], list[list[int]]]] = {
    "a read follows the last write": ([fill(A), fill(A), relu(A, RESULT)], [[], [0], [1]]),
    "a write follows the write before it": ([fill(A), double(INPUT, A)], [[], [0]]),
    "a write follows all reads since the last write": (
        [fill(A), relu(A, B), double(A, C), fill(A)],
        [[], [0], [0], [0, 1, 2]],
    ),
    "a write of what was there before follows its readers": (
        [relu(INPUT, A), relu(INPUT, B), fill(INPUT)],
        [[], [], [0, 1]],
    ),
    "readers do not wait for each other": (
        [fill(A), relu(A, B), relu(A, C), add(B, C, RESULT)],
        [[], [0], [0], [1, 2]],
    ),
    "updates of one block keep their order": ([fill(A), clip(A), update(INPUT, A), clip(A)], [[], [0], [1], [2]]),
    "an update follows readers too": ([relu(RESULT, A), update(A, RESULT), relu(RESULT, B)], [[], [0], [1]]),
    "draws from one state keep their order": ([draw(STATE, KEY), draw(STATE, OTHER)], [[], [0]]),
    "views count as their block": (
        [fill(part(A, 0, 0, 1)), fill(part(A, 0, 1, 3)), copy(reshaped(A, 2, 6), B), fill(part(A, 1, 0, 1))],
        [[], [0], [1], [1, 2]],
    ),
    "an operation does not wait for itself": ([call("add", A, A, A)], [[]]),
}


@pytest.mark.parametrize(("calls", "wanted"), CASES.values(), ids=CASES)
def test_what_an_operation_follows(calls, wanted):
    assert predecessors(instructions(*calls)) == wanted


def test_successors_and_ancestors():
    earlier = predecessors(instructions(fill(A), relu(A, B), relu(A, C), add(B, C, RESULT)))
    assert successors(earlier) == [[1, 2], [3], [3], []]
    earlier = predecessors(instructions(fill(A), relu(A, B), fill(C), add(B, C, RESULT)))
    assert [f"{bits:04b}" for bits in ancestors(earlier)] == ["0001", "0011", "0100", "1111"]


@thorough
@given(random_programs)
def test_two_that_touch_the_same_block_are_ordered_unless_both_read(made: Program):
    bits = ancestors(predecessors(made.instructions))
    for (i, one), (j, other) in combinations(enumerate(made.instructions), 2):
        touched = [({o.block for o in x.reads}, {o.block for o in x.writes}) for x in (one, other)]
        (reads, writes), (reads_later, writes_later) = touched
        if writes & (reads_later | writes_later) or reads & writes_later:
            assert bits[j] >> i & 1, f"{j} does not wait for {i}"
