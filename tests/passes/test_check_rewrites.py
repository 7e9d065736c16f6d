"""The proof that rewriting changes no value: what passes make of programs is let through, and no fault is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every_row import over_rows
from kernel_sets import kernel_sets
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
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.lower import lower
from singa_lite.compiler.pipeline import rewriting
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.check_rewrites import check_rewrites


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


# --- faults in what each built-in pass makes

#: Of devices without bytes, as faults are looked for in programs alone, those for a GPU too.
SETS = [*(kernels.name for kernels in kernel_sets()), "cuda", "cuda without libraries"]


def images(net: FeedForwardNet) -> None:
    """A sum behind a normalisation, activations of several kinds, densely connected maps, a pooling behind one."""
    net.add(layers.Conv2D("first", 4, 3, input_sample_shape=(3, 8, 12)))
    net.add(layers.BatchNormalization("norm"))
    relu = net.add(layers.Activation("relu"))
    net.add(layers.Conv2D("second", 4, 3))
    net.add(layers.BatchNormalization("norm2"))
    total = net.add(layers.Merge("sum"), ["norm2", relu])
    net.add(layers.BatchNormalization("norm3"))
    net.add(layers.Activation("relu3"))
    net.add(layers.Conv2D("third", 5, 3))
    net.add(layers.Concat("joined", 1), [total, "third"])
    net.add(layers.Conv2D("fourth", 8, 3))
    net.add(layers.Activation("relu4"))
    net.add(layers.MaxPooling2D("pool", 2, 2))
    net.add(layers.BatchNormalization("norm4"))
    net.add(layers.Activation("relu5"))
    net.add(layers.AvgPooling2D("mean", 2, 2))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 14))
    net.add(layers.Activation("tanh", "tanh"))
    net.add(layers.Dense("scores", 5))


def words(net: FeedForwardNet) -> None:
    """A table at the beginning, and scores of many classes."""
    net.add(layers.Embedding("ids", 67, 11, input_sample_shape=(31,)))
    net.add(layers.Activation("act", "tanh"))
    net.add(layers.Dense("head", 67))


def tied(net: FeedForwardNet) -> None:
    """A table that is used at both ends."""
    ids = net.add(layers.Embedding("ids", 67, 12, input_sample_shape=(31,)))
    net.add(layers.TransformerBlock("block", 4, causal=True))
    net.add(layers.TiedDense("head", ids))


SGD: dict[str, Any] = {"rule": lambda: optimizer.SGD(0.1)}
SMALL, CLASSES = {"tile_bytes": 600}, {"tile_bytes": 600, "class_tiles": True}
#: {name: (layers, options of compile, what of the target is otherwise)}.
NETS: dict[str, tuple[Callable[[FeedForwardNet], None], dict[str, Any], dict[str, Any]]] = {
    "images": (images, {}, {}),
    "images in 16 bits": (images, {"precision": "bfloat16"}, {}),
    "words, rows": (words, SGD, {}),
    "words, tiles of rows": (words, {}, SMALL),
    "words, tiles of classes": (words, {}, CLASSES),
    "words, clipped": (words, {"clip_global_norm": 1.0, "accumulate": 2}, SMALL),
    "tied": (tied, {}, {}),
    "tied, tiles of classes": (tied, {}, CLASSES),
}
#: Passes that work for several ranks, or by the user's rules, have tests of their own.
BESIDE = {"rules", "pieces", "flight", "own_parts"}


def recorded(kernels: str, name: str) -> Program:
    make, options, target = NETS[name]
    kind, _, without = kernels.partition(" ")
    on = device.abstract(kind, libraries=not without)
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=1 if make is images else -1), device=on, seed=3)
    make(net)
    options = dict(options)
    net.compile(options.pop("rule", optimizer.Adam)(), **options)
    program = net.plan_batch(9).placed.recorded
    return replace(program, target=replace(program.target, **target))


def made_by_passes(program: Program) -> tuple[Program, dict[int, str]]:
    """The rewritten program, and which pass made the calls in it that the record has not."""
    known, makers = {id(i) for i in program.instructions}, dict[int, str]()
    kept = list(program.instructions)  # so that no other object has the id of one
    for one in rewriting():
        program = one.run(program)
        new = [i for i in program.instructions if id(i) not in known]
        known.update(map(id, new))
        kept += new
        makers.update((id(i), one.name) for i in new)
    return program, makers


def faults(instruction: Instruction) -> Iterator[tuple[str, Instruction | None]]:
    """The instruction with operands of one form exchanged, with each of its settings changed, and left out."""
    operands = instruction.operands
    for a, b in combinations(range(len(operands)), 2):
        one, other = operands[a], operands[b]
        if one is not None and other is not None and one != other and one[1:3] == other[1:3]:
            swapped = list(operands)
            swapped[a], swapped[b] = other, one
            yield f"operands {a} and {b}", instruction.with_operands(tuple(swapped))
    for name, value in instruction.settings.items():
        if (other_value := changed_value(value)) is not None:
            yield f"{name}={other_value}", replace(instruction, settings={**instruction.settings, name: other_value})
    yield "left out", None


def changed_value(value: object) -> object:
    """Another value of a setting; None for what none is made of here."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float | int):
        return value + 1
    if isinstance(value, str):
        return "tanh" if value != "tanh" else "relu"
    if isinstance(value, tuple) and hasattr(value, "_replace"):
        numbers = {name: each + 0.5 for name, each in value._asdict().items() if isinstance(each, float)}
        return value._replace(**numbers) if numbers else None
    return None


def spoilt(program: Program, tried: set[tuple[str, ...]]) -> Iterator[tuple[str, Program]]:
    """(what is wrong, the rewritten program with it), for a instruction of each kernel that passes made calls of.

    tried: (pass, kernel) of those that were, of any program.
    """
    rewritten, makers = made_by_passes(program)
    check_rewrites(program, rewritten)
    for at, instruction in enumerate(rewritten.instructions):
        maker = makers.get(id(instruction), "")
        if maker and (maker, instruction.kernel) not in tried:
            tried.add((maker, instruction.kernel))
            for what, faulty in faults(instruction):
                calls = list(rewritten.instructions)
                calls[at : at + 1] = [] if faulty is None else [faulty]
                yield f"{maker}, {instruction}: {what}", rewritten.with_instructions(calls)


@pytest.mark.filterwarnings("ignore:compile precision")
def test_each_fault_in_what_a_pass_makes_is_told():
    tried: dict[str, set[tuple[str, ...]]] = {kernels: set() for kernels in SETS}

    def check(kernels: str, name: str) -> None:
        program = recorded(kernels, name)
        for what, faulty in spoilt(program, tried[kernels]):
            with pytest.raises(PlanError, match="rewriting, "):
                check_rewrites(program, faulty)
                raise AssertionError(f"{what}: was let through")

    over_rows(check, ((f"{kernels}, {name}", (kernels, name)) for kernels in SETS for name in NETS))
    assert {maker for each in tried.values() for maker, _ in each} == {one.name for one in rewriting()} - BESIDE
