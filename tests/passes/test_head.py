"""Heads by tiles of rows and of classes: what is cut, and that it gives what the record gives but for rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from programs import run
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.target import Target
from singa_lite.compiler.recompute.recompute_for_clipping import FORMS, clipping_forms
from singa_lite.compiler.rewrite.fusions import added_by_rows
from singa_lite.compiler.rewrite.head import by_tiles_of_rows
from singa_lite.compiler.rewrite.head_classes import by_tiles_of_classes
from singa_lite.compiler.rewrite.tiles import tiled
from singa_lite.kernels.numpy_kernels import NUMPY

#: Tensors of updates that hold no negative numbers.
SQUARES = ("second_moment", "rate")
TIME, BATCH, IDS, DIM = 31, 9, 67, 11


def recorded(
    tied: bool = True, rule: Any = None, measured: Any = None, shared: bool = False, clip: Any = None, **options: Any
) -> Program:
    """The record of a step of a net of ids, for tiles of 64 bytes."""
    net = FeedForwardNet(
        loss.SoftmaxCrossEntropy(-1, **options), measured, device=device.new_cpu(kernels="numpy"), seed=1
    )
    table = net.add(layers.Embedding("table", IDS, DIM, input_sample_shape=(TIME,)))
    net.add(layers.Activation("act", "tanh"))
    head = net.add(layers.TiedDense("head", table) if tied else layers.Dense("head", IDS))
    if shared:
        net.add(layers.Activation("scores", "tanh"), head)
    net.compile(rule or optimizer.SGD(0.3, momentum=0.9), clip_global_norm=clip)
    program = net.plan_batch(BATCH).placed.recorded
    return replace(program, target=replace(Target.of(NUMPY, 64), tile_bytes=64))


def by_classes(program: Program) -> Program:
    return by_tiles_of_classes(replace(program, target=replace(program.target, class_tiles=True)))


def bytes_before(program: Program) -> dict[int, np.ndarray]:
    """Of each held block: ids, counts of steps, moments that are not negative, other numbers."""
    rng, made = np.random.default_rng(2), dict[int, np.ndarray]()
    for instruction in program.instructions:
        for name, o in instruction.by_name.items():
            if o is None or o.block in program.sizes:
                continue
            if o.dtype.kind in "iu":
                values = rng.integers(0, IDS, o.shape) if o.shape else np.array(3)
            else:
                values = rng.standard_normal(o.shape) ** (2 if name in SQUARES else 1)
            made.setdefault(o.block, np.ascontiguousarray(values.astype(o.dtype)).reshape(-1).view(np.uint8))
    return made


def assert_alike(before: Program, after: Program) -> None:
    start = bytes_before(before)
    wanted, found = run(before, start), run(after, start)
    floats = {o.block for i in before.instructions for o in i.operands if o is not None and o.dtype.kind == "f"}
    moved = [block for block in start if block in floats and (wanted[block] != start[block]).any()]
    assert len(moved) > 2
    for block in moved:
        kind = next(o.dtype for i in before.instructions for o in i.operands if o is not None and o.block == block)
        np.testing.assert_allclose(found[block].view(kind), wanted[block].view(kind), rtol=1e-4, atol=1e-5)


def large(program: Program, classes: int = IDS) -> int:
    """The most numbers of a block of scores."""
    shapes = (o.shape for i in program.instructions for o in i.operands if o is not None and o.block in program.sizes)
    return max(shape[0] * shape[1] for shape in shapes if len(shape) == 2 and shape[1] == classes)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "untied": {"tied": False},
    "ignored": {"ignore_index": 0},
    "smoothed": {"label_smoothing": 0.2, "tied": False},
    "all": {"ignore_index": 3, "label_smoothing": 0.2, "measured": metric.Accuracy(-1)},
    "perplexity": {"measured": metric.Perplexity(-1, ignore_index=2)},
    "adam": {"rule": optimizer.AdamW(0.01, epsilon=1e-2)},
}


@pytest.mark.parametrize("rewritten", [by_tiles_of_rows, by_classes], ids=["rows", "rows and classes"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_tiles_give_what_the_record_gives(options: dict[str, Any], rewritten: Callable[[Program], Program]):
    before = added_by_rows(recorded(**options))
    after = rewritten(before)
    assert_alike(before, after)
    assert large(before) == BATCH * TIME * IDS
    assert large(after) < large(before) / 2
    kernels = [i.kernel for i in after.instructions]
    assert ("softmax_classes_derivative" in kernels) == (rewritten is by_classes)
    assert ("matmul_add" in kernels) == (rewritten is by_tiles_of_rows)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("form", ["", *FORMS])
def test_by_classes_no_gradient_of_the_weight_is_whole(tied: bool, form: str):
    """Also where clipping makes it twice, once for the norm and once for its update."""

    def whole(program: Program) -> bool:
        shapes = {o.shape for i in program.instructions for o in i.operands if o and o.block in program.sizes}
        return bool(shapes & {(IDS, DIM), (DIM, IDS)})

    clipped = recorded(tied, clip=0.1)
    before = added_by_rows(clipping_forms(clipped)[form] if form else recorded(tied))
    after = tiled(by_classes(before))
    assert whole(before)
    assert not whole(after)
    assert large(after) < large(before) / 2
    assert_alike(clipped if form else before, after)


def test_a_shared_table_has_one_gradient_which_may_be_cut():
    before = recorded()
    after = added_by_rows(before)
    kernels = [i.kernel for i in after.instructions]
    assert "embedding_gradient_add" in kernels
    assert "embedding_gradient" not in kernels
    assert_alike(before, after)
    assert_alike(before, tiled(after))


@pytest.mark.parametrize("rewritten", [by_tiles_of_rows, by_classes], ids=["rows", "rows and classes"])
def test_what_others_read_stays_whole(rewritten: Callable[[Program], Program]):
    before = recorded(shared=True)
    assert rewritten(before).instructions == before.instructions


def test_scores_of_few_classes_stay_whole():
    before = recorded()
    usual = replace(before, target=Target.of(NUMPY, 64))
    assert by_tiles_of_rows(usual) is usual
    assert by_classes(usual).instructions == usual.instructions
