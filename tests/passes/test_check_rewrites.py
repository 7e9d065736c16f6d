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


#: 1 = relu(tanh(0)) - tanh(0); nobody uses 12, of which 10 and 11 are the halves.
SOME = program(
    tanh(X, A),
    relu(A, B),
    subtract(B, A, Y),
    copy(A, part(C, 0, 0, 3)),
    copy(B, part(C, 0, 3, 6)),
    double(C, whole(13, 6, 4)),
    held=(0, 1),
)
OTHER = whole(14, 5, 2)
FILLS = program(
    call("fill", A, value=1.0),
    call("fill", OTHER, value=1.0),
    add(A, A, Y),
    copy(OTHER, whole(2, 5, 2)),
    held=(1, 2),
)
NAMES = {1: "loss", 10: "score"}
#: (before, after, what the error names).
TOLD: dict[str, tuple[Program, Program, str]] = {
    "who wrote operands": (
        SOME,
        changed(SOME, 2, lambda i: i.with_operands((A, B, Y))),
        r"instruction 2 \(subtract.*'a'.*instruction 1 \(relu.*instruction 0 \(tanh.*tensor 'score'",
    ),
    "parts that nobody uses": (
        SOME,
        changed(SOME, 3, lambda i: i.with_operands((B, part(C, 0, 0, 3)))),
        r"instruction 5 \(scale.*'x'.*parts of what instruction 0 \(tanh",
    ),
    "a call that the record has not": (
        SOME,
        SOME.with_instructions([*SOME.instructions, replace(SOME.instructions[2], number=99, kernel="add")]),
        r"instruction 99 \(add",
    ),
    "a held block taken for an intermediate": (
        SOME,
        replace(
            SOME, sizes={**SOME.sizes, 1: 48}, instructions=(*SOME.instructions[:-1], replace(SOME.instructions[-1]))
        ),
        r"held block 1 \(tensor 'loss'\)",
    ),
    "fills of two sizes": (
        FILLS,
        changed(FILLS, 3, lambda i: i.with_operands((part(A, 0, 0, 2)._replace(shape=(5, 2)), i.operands[1]))),
        "rewriting, ",
    ),
}


@pytest.mark.parametrize(("before", "after", "match"), TOLD.values(), ids=TOLD)
def test_a_fault_is_told_by_name(before, after, match):
    check_rewrites(before, before.with_instructions([replace(i) for i in before.instructions]))
    with pytest.raises(PlanError, match=match):
        check_rewrites(before, after, NAMES)


def test_parts_may_be_put_together_in_another_order():
    check_rewrites(SOME, moved(SOME, 3, 4))
