"""Faults in what each built-in rewriting pass makes are told: exchanged operands, other settings, calls left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from every_row import over_rows
from kernel_sets import kernel_sets
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.memory.problem import PlanError
from singa_lite.operation import Instruction
from singa_lite.passes.check_rewrites import check_rewrites
from singa_lite.passes.pipeline import rewriting
from singa_lite.passes.program import Program

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


def faults(call: Instruction) -> Iterator[tuple[str, Instruction | None]]:
    """The call with operands of one form exchanged, with each of its settings changed, and left out."""
    operands = call.operands
    for a, b in combinations(range(len(operands)), 2):
        one, other = operands[a], operands[b]
        if one is not None and other is not None and one != other and one[1:3] == other[1:3]:
            swapped = list(operands)
            swapped[a], swapped[b] = other, one
            yield f"operands {a} and {b}", call.with_operands(tuple(swapped))
    for name, value in call.settings.items():
        if (other_value := otherwise(value)) is not None:
            yield f"{name}={other_value}", replace(call, settings={**call.settings, name: other_value})
    yield "left out", None


def otherwise(value: object) -> object:
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
    """(what is wrong, the rewritten program with it), for a call of each kernel that passes made calls of.

    tried: (pass, kernel) of those that were, of any program.
    """
    rewritten, makers = made_by_passes(program)
    check_rewrites(program, rewritten)
    for at, call in enumerate(rewritten.instructions):
        maker = makers.get(id(call), "")
        if maker and (maker, call.kernel) not in tried:
            tried.add((maker, call.kernel))
            for what, faulty in faults(call):
                calls = list(rewritten.instructions)
                calls[at : at + 1] = [] if faulty is None else [faulty]
                yield f"{maker}, {call}: {what}", rewritten.with_instructions(calls)


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
