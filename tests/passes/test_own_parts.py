"""A large gradient of which each rank updates its part: made, summed and applied by strips of all ranks' rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from absent_ranks import Nobody, mlp, planned, ranks
from singa_lite import FeedForwardNet, layers, loss, optimizer
from singa_lite.memory.problem import PlanError
from singa_lite.parallel import DataParallel
from singa_lite.passes.check_rewrites import check_rewrites
from singa_lite.passes.collectives import BEGIN, WAIT, kind_of
from singa_lite.passes.own_parts import made_by_strips

SIZES = (1100, 1000, 7)
WHOLE = 4 * 1100 * 1000


def sharded(size=4, rank=1, **options):
    opt = options.pop("opt", None)
    return mlp(
        ranks(size, 1 << 20, 4 << 20, "state", rank), options.pop("sizes", SIZES), opt or optimizer.Adam(), **options
    )


def largest_block(program):
    return max(program.sizes.values())


@pytest.mark.parametrize("size", [2, 3, 4, 7, 40])
def test_it_never_exists_whole(size):
    alone = mlp(None, SIZES, optimizer.Adam()).plan_batch(8)
    for rank in {0, size - 1}:
        plan = sharded(size, rank).plan_batch(8)
        plan.check()
        assert largest_block(plan.placed.planned) < WHOLE / 3
        assert plan.arena_bytes <= alone.arena_bytes + (4 << 20)


def test_what_is_kept_for_a_norm_of_all_is_this_ranks_part():
    alone = mlp(None, SIZES, optimizer.Adam()).plan_batch(8).arena_bytes
    plan = sharded(4, 2, clip_global_norm=1.0).plan_batch(8)
    assert plan.arena_bytes <= alone + WHOLE / 4 + (4 << 20)


def test_ranks_sum_the_same_strips_though_they_update_others():
    shapes = [
        [
            instruction.operands[0].shape
            for instruction in planned(sharded(3, rank)).instructions
            if kind_of(instruction) == BEGIN
        ]
        for rank in range(3)
    ]
    assert shapes[0] == shapes[1] == shapes[2] and len(shapes[0]) > 5


def test_few_rows_are_parted_by_elements_and_copied():
    """7 rows of 200,000 are not whole rows of 2 ranks: a rank might have 4, and another one 3."""
    net = FeedForwardNet(loss.MeanSquaredError(), seed=1)
    net.add(layers.Dense("dense", 200_000, input_sample_shape=(7,), use_bias=False))
    net.compile(optimizer.SGD(0.1), parallel=DataParallel(Nobody(2), 1 << 20, 2 << 20, "state", None, False, 100))
    plan = net.plan_batch(3)
    plan.check()
    owned = [i.by_name["value"].shape for i in plan.placed.planned.instructions if i.kernel == "sgd"]
    assert owned == [(700_000,)]
    waits = [i for i in plan.placed.planned.instructions if kind_of(i) == WAIT and "own_part" in i.kernel]
    assert len(waits) > 2 and all(i.operands[0].nbytes <= 1 << 20 for i in waits)


def faults(call):
    """The call with other rows read or written, or left out. Of a sum what comes in belongs to no value."""
    for at, operand in enumerate(call.operands[:1] if kind_of(call) else call.operands):
        if operand is not None and operand.shape:
            moved = operand._replace(offset=operand.offset + operand.strides[0])
            yield f"operand {at}", call.with_operands((*call.operands[:at], moved, *call.operands[at + 1 :]))
    yield "left out", None


def test_each_fault_in_what_is_made_is_told():
    """Other ranks' rows as well, which this one only sends."""
    program = sharded(3, 1).plan_batch(8).placed.recorded
    made = made_by_strips(program)
    check_rewrites(program, made)
    known = {id(instruction) for instruction in program.instructions}
    new = [at for at, instruction in enumerate(made.instructions) if id(instruction) not in known]
    tried = [at for at in new if kind_of(made.instructions[at]) != BEGIN][:12]
    assert {made.instructions[at].kernel for at in tried} >= {"matmul", "adam", "copy"}
    for at in tried:
        for what, faulty in faults(made.instructions[at]):
            calls = list(made.instructions)
            calls[at : at + 1] = [] if faulty is None else [faulty]
            with pytest.raises(PlanError):
                check_rewrites(program, replace(made, instructions=tuple(calls)))
                raise AssertionError(f"{made.instructions[at]}: {what}: was let through")
