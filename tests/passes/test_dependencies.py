"""Read after write, write after write, write after read."""

from __future__ import annotations

from itertools import combinations

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


def before(*calls: Call) -> list[list[int]]:
    return predecessors(instructions(*calls))


def test_a_read_follows_the_write():
    assert before(fill(A), fill(B), relu(A, RESULT)) == [[], [], [0]]


def test_a_read_follows_the_last_write():
    assert before(fill(A), fill(A), relu(A, RESULT)) == [[], [0], [1]]


def test_a_write_follows_the_write_before_it():
    assert before(fill(A), double(INPUT, A)) == [[], [0]]


def test_a_write_follows_all_reads_since_the_last_write():
    assert before(fill(A), relu(A, B), double(A, C), fill(A)) == [[], [0], [0], [0, 1, 2]]


def test_a_write_of_what_was_there_before_follows_its_readers():
    assert before(relu(INPUT, A), relu(INPUT, B), fill(INPUT)) == [[], [], [0, 1]]


def test_readers_do_not_wait_for_each_other():
    assert before(fill(A), relu(A, B), relu(A, C), add(B, C, RESULT)) == [[], [0], [0], [1, 2]]


def test_updates_of_one_block_keep_their_order():
    assert before(fill(A), clip(A), update(INPUT, A), clip(A)) == [[], [0], [1], [2]]


def test_an_update_follows_readers_too():
    assert before(relu(RESULT, A), update(A, RESULT), relu(RESULT, B)) == [[], [0], [1]]


def test_draws_from_one_state_keep_their_order():
    state, key, other = whole(0, 3, dtype="u8"), whole(10, 3, dtype="u8"), whole(11, 3, dtype="u8")
    assert before(draw(state, key), draw(state, other)) == [[], [0]]


def test_views_count_as_their_block():
    rows = reshaped(A, 2, 6)
    assert before(fill(part(A, 0, 0, 1)), fill(part(A, 0, 1, 3)), copy(rows, B), fill(part(A, 1, 0, 1))) == [
        [],
        [0],
        [1],
        [1, 2],
    ]


def test_an_operation_does_not_wait_for_itself():
    assert before(call("add", A, A, A)) == [[]]


def test_successors_are_the_same_relation_the_other_way_round():
    earlier = before(fill(A), relu(A, B), relu(A, C), add(B, C, RESULT))
    assert successors(earlier) == [[1, 2], [3], [3], []]


def test_ancestors_are_all_that_must_be_done_and_itself():
    earlier = before(fill(A), relu(A, B), fill(C), add(B, C, RESULT))
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
