"""The proof that rewriting changes no value: what passes make of programs is let through, and no fault is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from programs import (
    Maker,
    add,
    bits,
    call,
    changed,
    copy,
    double,
    moved,
    part,
    program,
    random_programs,
    relu,
    run,
    start_of,
    subtract,
    tanh,
    thorough,
    whole,
)
from singa_lite.memory.problem import PlanError
from singa_lite.operation import Instruction
from singa_lite.passes.check_rewrites import check_rewrites
from singa_lite.passes.lower import lower
from singa_lite.passes.program import Program


@thorough
@given(random_programs)
def test_what_the_passes_make_is_let_through(made: Program):
    placed = lower(made)
    check_rewrites(placed.recorded, placed.rewritten)
    check_rewrites(made, made.with_instructions([replace(i) for i in made.instructions]))


def swapped(source: random.Random, made: Program, at: int) -> Program:
    """With two operands exchanged."""

    def change(instruction: Instruction) -> Instruction:
        operands = list(instruction.operands)
        one, other = source.randrange(len(operands)), source.randrange(len(operands))
        operands[one], operands[other] = operands[other], operands[one]
        return instruction.with_operands(tuple(operands))

    return changed(made, at, change)


def left_out(source: random.Random, made: Program, at: int) -> Program:
    return made.with_instructions([i for step, i in enumerate(made.instructions) if step != at])


def elsewhere(source: random.Random, made: Program, at: int) -> Program:
    return moved(made, at, source.randrange(len(made.instructions)))


def otherwise(source: random.Random, made: Program, at: int) -> Program:
    """With another tensor of the same shape, or other numbers, or another kernel."""
    alike = [o for i in made.instructions for o in i.operands if o is not None]

    def change(instruction: Instruction) -> Instruction:
        kind = source.randrange(3)
        if kind == 0:
            index = source.randrange(len(instruction.operands))
            fitting = [o for o in alike if (mine := instruction.operands[index]) and o.shape == mine.shape]
            operands = list(instruction.operands)
            operands[index] = source.choice(fitting)
            return instruction.with_operands(tuple(operands))
        if kind == 1:
            numbers = {n: v + 1.0 if isinstance(v, float) else v for n, v in instruction.settings.items()}
            return replace(instruction, settings=numbers)
        other = {"add": "subtract", "subtract": "add", "tanh": "relu", "relu": "tanh"}
        return replace(instruction, kernel=other.get(instruction.kernel, instruction.kernel))

    return changed(made, at, change)


FAULTS = (swapped, left_out, elsewhere, otherwise)


@thorough
@given(st.integers(0, 2**32 - 1))
def test_what_is_let_through_makes_the_same_bits(seed: int):
    """Of random faults in random programs: whatever changes a held block's bits is refused."""
    source = random.Random(seed)
    made = Maker(source).made()
    fault: Callable[..., Program] = source.choice(FAULTS)
    faulty = fault(source, made, source.randrange(len(made.instructions)))
    try:
        check_rewrites(made, faulty)
    except PlanError:
        return
    start = start_of(made)
    assert bits(run(faulty, start)) == bits(run(made, start))


X, Y = whole(0, 3, 4), whole(1, 3, 4)
A, B, C = whole(10, 3, 4), whole(11, 3, 4), whole(12, 6, 4)


def some() -> Program:
    """1 = relu(tanh(0)) - tanh(0); nobody uses 12, of which 10 and 11 are the halves."""
    return program(
        tanh(X, A),
        relu(A, B),
        subtract(B, A, Y),
        copy(A, part(C, 0, 0, 3)),
        copy(B, part(C, 0, 3, 6)),
        double(C, whole(13, 6, 4)),
        held=(0, 1),
    )


def test_operands_are_named_by_who_wrote_them():
    with pytest.raises(PlanError) as error:
        check_rewrites(some(), changed(some(), 2, lambda i: i.with_operands((A, B, Y))), {1: "loss", 10: "score"})
    assert str(error.value) == (
        "rewriting, instruction 2 (subtract, layer ''): 'a': wanted what instruction 1 (relu, layer '') wrote as 'y', "
        "received what instruction 0 (tanh, layer '') wrote as 'y' (tensor 'score')"
    )


def test_what_is_put_together_in_another_order_is_told_where_nobody_uses_it():
    other = moved(some(), 3, 4)
    check_rewrites(some(), other)
    wrong = changed(some(), 3, lambda i: i.with_operands((B, part(C, 0, 0, 3))))
    with pytest.raises(PlanError, match=r"instruction 5 \(scale.*'x': wanted parts of what instruction 0 \(tanh"):
        check_rewrites(some(), wrong)


def test_a_call_that_the_record_has_not_is_told():
    made = some()
    extra = replace(made.instructions[2], number=99, kernel="add")
    with pytest.raises(
        PlanError, match=r"instruction 99 \(add.*: wanted a call that operations of the record stand for"
    ):
        check_rewrites(made, made.with_instructions([*made.instructions, extra]))


def test_a_held_block_that_is_taken_for_an_intermediate_is_told():
    made = some()
    taken = replace(
        made, sizes={**made.sizes, 1: 48}, instructions=(*made.instructions[:-1], replace(made.instructions[-1]))
    )
    with pytest.raises(PlanError, match=r"rewriting, held block 1 \(tensor 'loss'\): wanted it left with"):
        check_rewrites(made, taken, {1: "loss"})


def test_fills_of_two_sizes_are_two_values():
    other = whole(14, 5, 2)
    fills = call("fill", A, value=1.0), call("fill", other, value=1.0)
    two = program(*fills, add(A, A, Y), copy(other, whole(2, 5, 2)), held=(1, 2))
    check_rewrites(two, two.with_instructions([replace(i) for i in two.instructions]))
    wrong = changed(two, 3, lambda i: i.with_operands((part(A, 0, 0, 2)._replace(shape=(5, 2)), i.operands[1])))
    with pytest.raises(PlanError, match=r"rewriting, "):
        check_rewrites(two, wrong)
