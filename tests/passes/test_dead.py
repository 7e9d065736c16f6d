"""Instructions whose results nobody uses vanish, and no others do."""

from __future__ import annotations

from hypothesis import given

from programs import (
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


def test_a_chain_that_leads_nowhere_vanishes_as_a_whole():
    made = program(relu(INPUT, RESULT), relu(INPUT, A), double(A, B), add(A, B, C), held=[0, 1])
    assert numbers(without_dead(made)) == [0]


def test_what_a_held_block_needs_stays_however_far_back():
    made = program(relu(INPUT, A), double(INPUT, C), double(A, B), copy(B, RESULT), held=[0, 1])
    assert numbers(without_dead(made)) == [0, 2, 3]


def test_nothing_is_left_of_a_program_without_results():
    assert without_dead(program(relu(INPUT, A), relu(A, B), held=[0])).instructions == ()


def test_an_update_of_a_held_block_stays_though_nobody_reads_it():
    made = program(relu(INPUT, A), update(A, RESULT), clip(RESULT), held=[0, 1])
    assert numbers(without_dead(made)) == [0, 1, 2]


def test_a_random_state_moves_on_though_nobody_uses_the_key():
    state, key = whole(1, 3, dtype="u8"), whole(10, 3, dtype="u8")
    made = program(draw(state, key), dropout(INPUT, key, A), held=[0, 1])
    assert numbers(without_dead(made)) == [0]


def test_an_update_of_an_intermediate_stays_only_if_somebody_reads_it_later():
    made = program(relu(INPUT, A), clip(A), copy(A, RESULT), clip(A), held=[0, 1])
    assert numbers(without_dead(made)) == [0, 1, 2]


def test_one_used_output_of_two_keeps_the_instruction():
    norm, norms = whole(11, 3), whole(1, 3)
    made = program(normed(INPUT, A, norm), copy(norm, norms), held=[0, 1])
    assert numbers(without_dead(made)) == [0, 1]


def test_a_write_after_the_last_read_vanishes_and_one_before_it_stays():
    made = program(fill(A), double(A, RESULT), fill(A, 7.0), held=[1])
    assert numbers(without_dead(made)) == [0, 1]


def test_all_pieces_of_a_block_in_use_stay():
    made = program(
        relu(part(INPUT, 0, 0, 1), part(A, 0, 0, 1)),
        relu(part(INPUT, 0, 1, 3), part(A, 0, 1, 3)),
        copy(A, RESULT),
        held=[0, 1],
    )
    assert numbers(without_dead(made)) == [0, 1, 2]


def test_an_optional_operand_that_is_left_out_is_no_trouble():
    weight = whole(2, 4, 4)
    made = program(call("linear", INPUT, weight, None, RESULT), call("linear", INPUT, weight, None, A), held=[0, 1, 2])
    assert numbers(without_dead(made)) == [0]


@thorough
@given(random_programs)
def test_results_of_random_programs_do_not_change(made: Program):
    lean = without_dead(made)
    assert_same(made, lean)
    assert without_dead(lean) == lean
