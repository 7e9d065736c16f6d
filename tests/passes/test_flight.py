"""Sums over the ranks in a plan: begun early, waited for late, within a limit, and nobody touches what is under way.

The plans are of one rank of several that do not exist: nothing runs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from math import prod
from typing import NoReturn

import numpy as np
import pytest

from singa_lite import FeedForwardNet, layers, loss, optimizer
from singa_lite.compiler.ir.collectives import BEGIN, POLL, WAIT, digest, kind_of, most_in_flight
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.check_rewrites import check_rewrites
from singa_lite.compiler.proof.read_from import check_reads
from singa_lite.compiler.ranks.own_parts import made_by_strips
from singa_lite.kernels.collective import parts_of
from singa_lite.parallel import DataParallel
from singa_lite.parallel.communicator import ARRIVED, Communicator


class Nobody(Communicator):
    """The others never come."""

    def __init__(self, size: int, rank: int = 0) -> None:
        self.rank, self.size = rank, size

    def exchange(self, given):
        return [given] * self.size

    def spread(self, sent, received, number):
        return ARRIVED

    def wait(self, pending, doing):
        raise AssertionError

    def abort(self, message) -> NoReturn:
        raise AssertionError(message)


def ranks(size=2, bucket=2000, in_flight=1 << 24, shard=None, rank=0):
    return DataParallel(Nobody(size, rank), bucket, in_flight, shard, False, 100)


def mlp(parallel, sizes=(40, 30, 20, 10), opt=None, **options):
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1)
    net.add(layers.Dense("dense", sizes[1], input_sample_shape=(sizes[0],)))
    for number, size in enumerate(sizes[2:]):
        net.add(layers.Activation(f"tanh{number}", "tanh"))
        net.add(layers.Dense(f"dense{number}", size))
    net.compile(opt or optimizer.SGD(0.1, momentum=0.9), parallel=parallel, **options)
    return net


def planned(net, batch=8):
    return net.plan_batch(batch).placed.planned


def steps(program, kind):
    return [step for step, instruction in enumerate(program.instructions) if kind_of(instruction) == kind]


def test_without_other_ranks_nothing_is_summed():
    program = planned(mlp(ranks(size=1)))
    assert not [i for i in program.instructions if kind_of(i)]
    assert mlp(None).plan_batch(8).in_flight_bytes == 0


def test_the_walk_back_goes_on_while_a_gradient_is_summed():
    program = planned(mlp(ranks(bucket=1)))
    calls, first = program.instructions, steps(program, BEGIN)[0]
    end = next(s for s in steps(program, WAIT) if calls[s].operands[1] == calls[first].operands[1])
    assert {"matmul", "tanh_derivative"} <= {i.kernel for i in calls[first:end]}


def test_small_gradients_are_summed_together():
    # one of all vectors and the last weight, two alone
    assert [len(steps(planned(mlp(ranks(bucket=bucket))), BEGIN)) for bucket in (1, 2000, 1 << 20)] == [6, 3, 1]


WIDER = (60, 50, 40, 30)


def test_what_is_under_way_has_a_limit_and_a_lower_one_waits_sooner():
    alone, largest = mlp(None, WIDER).plan_batch(8), 60 * 50 * 4
    for limit in (12_000, 100_000):
        plan = mlp(ranks(bucket=1, in_flight=limit), WIDER).plan_batch(8)
        assert 0 < plan.in_flight_bytes <= max(limit, largest + largest // 2 + 64)
        assert plan.arena_bytes <= alone.arena_bytes + plan.in_flight_bytes + 4096
        assert "in flight" in plan.summary()
    high, low = (planned(mlp(ranks(bucket=1, in_flight=limit), WIDER)) for limit in (1 << 20, 20_000))
    assert most_in_flight(low) <= 20_000 < most_in_flight(high)
    assert digest(low) == digest(high)


@pytest.mark.parametrize(
    ("limit", "bucket", "sizes"),
    [
        (1, 6000, WIDER),
        (12_000, 1, WIDER),
        (30_000, 1, WIDER),
        (3000, 20_000, (20, 400, 400, 400, 3)),
    ],
)
def test_parts_that_are_gathered_have_the_limit_too(limit, bucket, sizes):
    """Each sum is two: the gradient's, and behind the update that of the parameter's parts."""
    low, free = (
        mlp(ranks(bucket=bucket, in_flight=most, shard="state"), sizes, optimizer.Adam(0.1)).plan_batch(8)
        for most in (limit, 1 << 30)
    )
    low.check()  # each is begun before it is ended
    largest = 4 * max(one * other for one, other in pairwise(sizes))
    assert 0 < low.in_flight_bytes <= max(limit, largest + largest // 2 + 64)
    assert low.in_flight_bytes < free.in_flight_bytes
    assert _elements_summed(low) == _elements_summed(free)


def _elements_summed(plan):
    """By kernel: a gradient is one sum, or several strips of it."""
    found = Counter()
    for instruction in plan.placed.planned.instructions:
        if kind_of(instruction) in (BEGIN, WAIT):
            found[instruction.kernel] += prod(instruction.operands[0].shape)
    return found


@pytest.mark.parametrize("opt", [optimizer.SGD(0.1), optimizer.Adam(0.1)])
def test_ranks_with_batches_of_unequal_sizes_begin_the_same_sums(opt):
    net = mlp(ranks(size=3, bucket=1 << 20), (1100, 1000, 7), opt)
    assert len({digest(planned(net, batch)) for batch in (1, 3, 8, 2000)}) == 1


@pytest.mark.parametrize(
    "options",
    [{}, {"clip_global_norm": 1.0}, {"accumulate": 2}, {"accumulate": 2, "clip_global_norm": 1.0, "loss_scale": 8.0}],
)
@pytest.mark.parametrize("in_flight", [1, 1 << 24])
def test_ranks_without_a_part_of_a_gradient_begin_and_end_the_same_sums(options, in_flight):
    """Of one element two ranks of three have none, and nothing to do between its sum and its way back."""
    found = []
    for rank in range(3):
        several = ranks(3, 1, in_flight, "state", rank)
        placed = mlp(several, sizes=(6, 2, 1, 5), **options).plan_batch(8).placed
        found.append(digest(placed.planned))
        begun, waited = (steps(placed.planned, kind) for kind in (BEGIN, WAIT))
        assert len(begun) == len(waited) >= 6
        polls = {placed.planned.instructions[step].number for step in steps(placed.planned, POLL)}
        assert polls.isdisjoint(i.number for i in placed.rewritten.instructions)
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    "options", [{}, {"clip_global_norm": 1.0}, {"accumulate": 2}, {"micro_batches": 2}, {"fuse": False}]
)
def test_plans_are_proved(options):
    plan = mlp(ranks(size=3), **options).plan_batch(8)
    plan.check()
    assert plan.in_flight_bytes


def test_within_a_budget_sums_are_done_once():
    net = mlp(ranks(bucket=1), (40, *[60] * 8, 10))
    free = net.plan_batch(2000).total_bytes
    plan = net.plan_batch(2000, memory_budget=int(free * 0.7))
    plan.check()
    assert plan.recomputed
    assert plan.total_bytes <= 0.7 * free
    begun = [i for i in plan.placed.planned.instructions if kind_of(i) == BEGIN]
    assert len(begun) == 18
    assert all(i.repeats is None for i in begun)


# ---- planted faults


def moved(program, step, to):
    instructions = list(program.instructions)
    instructions.insert(to, instructions.pop(step))
    return replace(program, instructions=tuple(instructions))


def in_use(placed):
    """A tensor that lives meanwhile gets the bytes of what comes in from the others."""
    calls, first = placed.planned.instructions, steps(placed.planned, BEGIN)[0]
    landing = calls[first].operands[1].block
    written = (o.block for i in calls[first + 1 :] if not kind_of(i) for o in i.writes)
    other = next(block for block in written if block in placed.offsets and block != landing)
    return placed.planned, {**placed.offsets, other: placed.offsets[landing]}


def updated_early(placed):
    calls = placed.planned.instructions
    update = next(s for s, i in enumerate(calls) if i.kernel == "sgd")
    summed = calls[update].operands[0].block
    wait = next(s for s in steps(placed.planned, WAIT) if calls[s].operands[0].block == summed)
    return moved(placed.planned, update, wait), placed.offsets


def begun_early(placed):
    return moved(placed.planned, steps(placed.planned, BEGIN)[0], 1), placed.offsets


def never_waited_for(placed):
    last = steps(placed.planned, WAIT)[-1]
    left = tuple(i for s, i in enumerate(placed.planned.instructions) if s != last)
    return replace(placed.planned, instructions=left), placed.offsets


def in_another_order(placed):
    first, second = steps(placed.planned, BEGIN)[:2]
    return moved(placed.planned, first, second), placed.offsets


def poll_with_a_tensor(placed):
    calls = list(placed.planned.instructions)
    step, wait = steps(placed.planned, POLL)[0], calls[steps(placed.planned, WAIT)[0]]
    calls[step] = replace(calls[step], operands=wait.operands[:1])
    return replace(placed.planned, instructions=tuple(calls)), placed.offsets


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        (in_use, r"left alone that sum \d+"),
        (updated_early, r"sgd, layer 'dense1'.*left alone that sum \d+"),
        (begun_early, "wanted"),
        (never_waited_for, r"sum \d+"),
        (in_another_order, r"'turn'|left alone"),
        (poll_with_a_tensor, None),
    ],
)
def test_a_planted_fault_is_refused(fault, match):
    placed = mlp(ranks(bucket=1)).plan_batch(8).placed
    check_reads(placed.rewritten, placed.planned, placed.offsets)
    program, offsets = fault(placed)
    with pytest.raises((PlanError, ValueError), match=match):
        check_reads(placed.rewritten, program, offsets)


def test_parts_cover_all_elements():
    for elements, count in product((0, 1, 2, 5, 7, 100), (1, 2, 3, 4, 7)):
        found = np.concatenate([np.arange(elements)[part] for part in parts_of(elements, count)])
        assert np.array_equal(found, np.arange(elements))


# --- a large gradient of which each rank updates its part

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
    net.compile(optimizer.SGD(0.1), parallel=DataParallel(Nobody(2), 1 << 20, 2 << 20, "state", False, 100))
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
