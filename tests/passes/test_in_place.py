"""Outputs overwrite inputs that die where the kernel allows it, and never what somebody still reads."""

from __future__ import annotations

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
from singa_lite.operation import Operand
from singa_lite.passes.in_place import in_place
from singa_lite.passes.program import Program, floor, live_bytes

INPUT, RESULT, SECOND = (whole(number, 3, 4) for number in range(3))
A, B, C, D, E = (whole(number, 3, 4) for number in range(10, 15))
CHAIN = [whole(number, 3, 4) for number in range(10, 20)]
IMAGES = (2, 3, 4, 5)
ROW, NORM = whole(16, 4), whole(17, 3)
SQUARE, PRODUCT = whole(10, 3, 3), whole(11, 3, 3)


def in_order(*axes: int) -> list[Call]:
    x, y, other = (permuted(block, IMAGES, axes) for block in (10, 11, 12))
    return [double(whole(0, *IMAGES), x), relu(x, y), double(y, other), copy(other, whole(1, *IMAGES))]


def used_later(later: Call) -> list[Call]:
    return [double(INPUT, A), relu(A, B), copy(B, RESULT), later, copy(A, SECOND)]


def one_dies(alive: Operand) -> list[Call]:
    return [double(INPUT, A), relu(INPUT, B), add(A, B, C), copy(C, RESULT), copy(alive, SECOND)]


#: (calls, the block that each writes into behind the pass).
CASES: dict[str, tuple[list[Call], list[int]]] = {
    "an input dies": ([double(INPUT, A), relu(A, B), double(B, RESULT)], [10, 10, 1]),
    "a chain is one block": (
        [
            double(INPUT, A),
            *(relu(x, y) if x.block % 2 else double(x, y) for x, y in pairwise(CHAIN)),
            copy(CHAIN[-1], RESULT),
        ],
        [10] * 10 + [1],
    ),
    "the same operation twice in place": (
        [fill(A), update(INPUT, A), update(INPUT, A), relu(A, B), relu(B, C), copy(C, RESULT)],
        [10, 10, 10, 10, 10, 1],
    ),
    "channels last": (in_order(0, 2, 3, 1), [10, 10, 10, 1]),
    "filters last": (in_order(2, 3, 1, 0), [10, 10, 10, 1]),
    "used later": (used_later(copy(A, SECOND)), [10, 11, 1, 2, 2]),
    "a piece used later": (used_later(copy(part(A, 1, 1, 3), part(SECOND, 1, 0, 2))), [10, 11, 1, 2, 2]),
    "used later from the side": (used_later(call("copy", turned(A), reshaped(SECOND, 4, 3))), [10, 11, 1, 2, 2]),
    "used later in another shape": (used_later(copy(reshaped(A, 2, 6), reshaped(SECOND, 2, 6))), [10, 11, 1, 2, 2]),
    "changed in place later": (used_later(clip(A)), [10, 11, 1, 10, 2]),
    "of many readers only the last overwrites": (
        [double(INPUT, A), relu(A, B), double(A, C), relu(A, D), add(B, C, E), add(E, D, RESULT)],
        [10, 11, 12, 10, 11, 1],
    ),
    "there twice": ([double(INPUT, A), add(A, A, B), copy(B, RESULT)], [10, 11, 1]),
    "beside another view of its block": ([double(INPUT, A), add(A, part(A, 0, 1, 2), B), copy(B, RESULT)], [10, 11, 1]),
    "of two the first dies": (one_dies(B), [10, 11, 10, 1, 2]),
    "of two the second dies": (one_dies(A), [10, 11, 11, 1, 2]),
    "broadcast": ([fill(ROW), add(ROW, INPUT, A), copy(A, RESULT)], [16, 10, 1]),
    "held": ([relu(INPUT, A), double(A, RESULT), relu(INPUT, SECOND)], [10, 1, 2]),
    "an output that held something before": (
        [double(INPUT, A), fill(B), relu(A, B), fill(part(B, 0, 0, 1)), copy(B, RESULT)],
        [10, 11, 11, 11, 1],
    ),
    "a kernel that does not allow it": (
        [double(part(INPUT, 1, 0, 3), SQUARE), matmul(SQUARE, SQUARE, PRODUCT), copy(PRODUCT, part(RESULT, 1, 0, 3))],
        [10, 11, 1],
    ),
    "one output of two": (
        [double(INPUT, A), normed(A, B, NORM), copy(B, RESULT), copy(NORM, part(reshaped(SECOND, 12), 0, 0, 3))],
        [10, 10, 1, 2],
    ),
    "the first allowed input that dies": (
        [
            double(INPUT, A),
            relu(INPUT, B),
            fill(C),
            call("squared_error_derivative", A, B, C, D),
            copy(D, RESULT),
            copy(A, SECOND),
        ],
        [10, 11, 12, 11, 1, 2],
    ),
    "a merged block lives on until its last reader": (
        [double(INPUT, A), relu(A, B), double(B, C), relu(B, D), copy(C, RESULT), copy(D, SECOND)],
        [10, 10, 12, 10, 1, 2],
    ),
}


def lowered(*calls: Call) -> Program:
    """The calls after the pass, which left all results as they were and no step with more live bytes."""
    made = program(*calls, held=[0, 1, 2])
    result = in_place(made)
    assert_same(made, result)
    assert all(after <= before for after, before in zip(live_bytes(result), live_bytes(made), strict=True))
    return result


@pytest.mark.parametrize(("calls", "wanted"), CASES.values(), ids=CASES)
def test_an_output_takes_the_bytes_of_an_input_that_dies(calls, wanted):
    assert [instruction.writes[0].block for instruction in lowered(*calls).instructions] == wanted


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
    assert {10, 11} <= extents(made.instructions).keys()


def test_blocks_without_bytes_are_no_trouble():
    x, y, z = whole(10, 0, 4), whole(11, 0, 4), whole(0, 0, 4)
    made = in_place(program(relu(z, x), relu(x, y), copy(y, whole(1, 0, 4)), held=[0, 1]))
    assert floor(made) == 0


@thorough
@given(random_programs)
def test_random_programs_keep_their_results_and_never_need_more(made: Program):
    result = in_place(made)
    assert_same(made, result)
    assert all(after <= before for after, before in zip(live_bytes(result), live_bytes(made), strict=True))
