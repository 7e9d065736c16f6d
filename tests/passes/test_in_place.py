"""Outputs overwrite inputs that die where the kernel allows it, and never what somebody still reads."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

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
    extents,
    fill,
    matmul,
    normed,
    part,
    permuted,
    program,
    random_programs,
    relu,
    reshaped,
    thorough,
    turned,
    update,
    whole,
)
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.operation import Operand
from singa_lite.passes.in_place import in_place
from singa_lite.passes.program import Program, floor, live_bytes

INPUT, RESULT = whole(0, 3, 4), whole(1, 3, 4)
SECOND = whole(2, 3, 4)
A, B, C, D = (whole(number, 3, 4) for number in (10, 11, 12, 13))
HELD = [0, 1, 2]


def lowered(*calls: Call, held: list[int] = HELD) -> Program:
    """The calls after the pass, which left all results as they were and no step with more live bytes."""
    made = program(*calls, held=held)
    result = in_place(made)
    assert_same(made, result)
    assert all(after <= before for after, before in zip(live_bytes(result), live_bytes(made), strict=True))
    return result


def blocks(given: Program) -> set[int]:
    """The intermediate blocks in use."""
    return extents(given.instructions).keys() & given.sizes.keys()


def test_an_output_takes_the_bytes_of_an_input_that_dies():
    made = lowered(double(INPUT, A), relu(A, B), double(B, RESULT))
    assert blocks(made) == {10}
    assert floor(made) == 64


def test_a_chain_is_one_block():
    chain = [whole(number, 3, 4) for number in range(10, 20)]
    calls = [double(INPUT, chain[0])]
    calls += [relu(x, y) if x.block % 2 else double(x, y) for x, y in pairwise(chain)]
    assert blocks(lowered(*calls, copy(chain[-1], RESULT))) == {10}


def test_the_same_operation_twice_in_place():
    made = lowered(fill(A), update(INPUT, A), update(INPUT, A), relu(A, B), relu(B, C), copy(C, RESULT))
    assert blocks(made) == {10}


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (2, 3, 1, 0)])
def test_images_that_lie_alike_in_any_order(order):
    start, result = whole(0, 2, 3, 4, 5), whole(1, 2, 3, 4, 5)
    x, y, other = (permuted(block, (2, 3, 4, 5), order) for block in (10, 11, 12))
    assert blocks(lowered(double(start, x), relu(x, y), double(y, other), copy(other, result), held=[0, 1])) == {10}


LATER: dict[str, Call] = {
    "itself": copy(A, SECOND),
    "a piece of it": copy(part(A, 1, 1, 3), part(SECOND, 1, 0, 2)),
    "it from the side": call("copy", turned(A), reshaped(SECOND, 4, 3)),
    "it under another shape": copy(reshaped(A, 2, 6), reshaped(SECOND, 2, 6)),
    "and changes it in place": clip(A),
}


@pytest.mark.parametrize("later", LATER.values(), ids=LATER.keys())
def test_an_input_that_somebody_uses_later_is_left_alone(later):
    made = lowered(double(INPUT, A), relu(A, B), copy(B, RESULT), later, copy(A, SECOND))
    assert blocks(made) == {10, 11}


def test_of_many_readers_only_the_last_overwrites():
    made = lowered(double(INPUT, A), relu(A, B), double(A, C), relu(A, D), add(B, C, whole(14, 3, 4)),
                   add(whole(14, 3, 4), D, RESULT))  # fmt: skip
    assert [o.block for o in made.instructions[1].writes] == [11]
    assert [o.block for o in made.instructions[2].writes] == [12]
    assert [o.block for o in made.instructions[3].writes] == [10]
    assert [o.block for o in made.instructions[4].writes] == [11]


def test_an_operand_that_is_there_twice_is_not_overwritten():
    assert blocks(lowered(double(INPUT, A), add(A, A, B), copy(B, RESULT))) == {10, 11}


def test_an_operand_beside_another_view_of_its_block_is_not_overwritten():
    row = part(A, 0, 1, 2)
    assert blocks(lowered(double(INPUT, A), add(A, row, B), copy(B, RESULT))) == {10, 11}


@pytest.mark.parametrize("dying", [A, B], ids=["the first", "the second"])
def test_of_two_inputs_the_one_that_dies_is_overwritten(dying):
    alive = B if dying is A else A
    made = lowered(double(INPUT, A), relu(INPUT, B), add(A, B, C), copy(C, RESULT), copy(alive, SECOND))
    assert blocks(made) == {10, 11}
    assert made.instructions[2].writes[0].block == dying.block


def test_a_broadcast_input_is_not_overwritten():
    row, made = whole(10, 4), whole(11, 3, 4)
    assert blocks(lowered(fill(row), add(row, INPUT, made), copy(made, RESULT))) == {10, 11}


def test_what_is_held_is_neither_overwritten_nor_moved():
    made = lowered(relu(INPUT, A), double(A, RESULT), relu(INPUT, SECOND))
    assert [[o.block for o in i.operands] for i in made.instructions] == [[0, 10], [10, 1], [0, 2]]


UNLIKE: dict[str, tuple[Operand, Operand]] = {
    "another dtype of the same size": (whole(10, 3, 4), whole(11, 3, 4, dtype="i4")),
    "another dtype and size": (whole(10, 3, 4), whole(11, 3, 4, dtype="f8")),
    "other strides": (turned(whole(10, 4, 3)), whole(11, 3, 4)),
    "another order of the axes": (permuted(10, (3, 4), (1, 0)), whole(11, 3, 4)),
    "only a piece of its block": (part(whole(10, 3, 8), 1, 2, 6), whole(11, 3, 4)),
    "the beginning of its block": (part(whole(10, 5, 4), 0, 0, 3), whole(11, 3, 4)),
    "a piece of a larger output": (whole(10, 3, 4), part(whole(11, 3, 8), 1, 4, 8)),
}


@pytest.mark.parametrize(("x", "y"), UNLIKE.values(), ids=UNLIKE.keys())
def test_operands_that_do_not_lie_alike_stay_apart(x, y):
    sizes = {name: extents(program(fill(o), held=[]).instructions)[o.block] for name, o in (("x", x), ("y", y))}
    spare = {"x": whole(10, max(sizes["x"], 160) // 4), "y": whole(11, max(sizes["y"], 96) // 4)}
    made = lowered(fill(spare["x"]), copy(INPUT, x), copy(x, y), double(y, RESULT))
    assert {10, 11} <= blocks(made)
    assert spare["y"].block in blocks(made)


def test_an_output_that_held_something_before_is_not_merged():
    lower_half = part(B, 0, 0, 1)
    assert blocks(lowered(double(INPUT, A), fill(B), relu(A, B), fill(lower_half), copy(B, RESULT))) == {10, 11}


def test_kernels_that_do_not_allow_it_are_left_alone():
    square = whole(10, 4, 4)
    out = whole(11, 4, 4)
    weight, result = whole(0, 4, 4), whole(1, 4, 4)
    made = lowered(double(weight, square), matmul(square, weight, out), copy(out, result))
    assert blocks(made) == {10, 11}


def test_one_output_in_place_and_another_not():
    norm, norms = whole(12, 3), whole(2, 3)
    made = lowered(double(INPUT, A), normed(A, B, norm), copy(B, RESULT), copy(norm, norms))
    y, norm_after = made.instructions[1].writes
    assert (y.block, norm_after.block) == (10, 12)


def test_two_outputs_do_not_take_the_same_input(monkeypatch):
    both = replace(SIGNATURES["l2_norm"], overwrites={"y": ("x",), "norm": ("x",)})
    monkeypatch.setitem(SIGNATURES, "l2_norm", both)
    start, x, y, norm = whole(0, 5), whole(10, 5), whole(11, 5), whole(12, 5)
    results = whole(1, 5), whole(2, 5)
    made = lowered(double(start, x), normed(x, y, norm), copy(y, results[0]), copy(norm, results[1]))
    assert [o.block for o in made.instructions[1].writes] == [10, 12]


def test_the_first_allowed_input_that_dies_is_taken():
    dy, x, target = A, B, C
    made = lowered(
        double(INPUT, dy), relu(INPUT, x), fill(target), call("squared_error_derivative", dy, x, target, D),
        copy(D, RESULT), copy(dy, SECOND),
    )  # fmt: skip
    assert made.instructions[3].writes[0].block == x.block


def test_a_merged_block_lives_on_until_its_last_reader():
    made = lowered(double(INPUT, A), relu(A, B), double(B, C), relu(B, D), copy(C, RESULT), copy(D, SECOND))
    assert [i.writes[0].block for i in made.instructions[:4]] == [10, 10, 12, 10]


def test_blocks_without_bytes_are_no_trouble():
    x, y, z = whole(10, 0, 4), whole(11, 0, 4), whole(0, 0, 4)
    made = in_place(program(relu(z, x), relu(x, y), copy(y, whole(1, 0, 4)), held=[0, 1]))
    assert floor(made) == 0


def test_numbers_settings_and_held_operands_stay():
    given = program(double(INPUT, A), relu(A, B), double(B, RESULT), held=HELD)
    made = in_place(given)
    for before, after in zip(given.instructions, made.instructions, strict=True):
        assert (before.number, before.kernel, before.settings) == (after.number, after.kernel, after.settings)
        assert [o[1:] for o in before.operands] == [o[1:] for o in after.operands]


@thorough
@given(random_programs)
def test_random_programs_keep_their_results_and_never_need_more(made: Program):
    result = in_place(made)
    assert_same(made, result)
    assert all(after <= before for after, before in zip(live_bytes(result), live_bytes(made), strict=True))
