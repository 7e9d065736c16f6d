"""Sums over the ranks in a plan: begun early, waited for late, within a limit, and nobody touches what is under way.

The plans are of one rank of several that do not exist: nothing runs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np
import pytest

from absent_ranks import mlp, planned, ranks, steps
from singa_lite import FeedForwardNet, layers, loss, optimizer
from singa_lite.memory.problem import PlanError
from singa_lite.passes.collectives import BEGIN, POLL, WAIT, digest, kind_of, most_in_flight
from singa_lite.passes.read_from import check_reads


def many_filters():
    """Its filters are 4.7 MB, and not made by a product that tiles are made of."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1)
    net.add(layers.Conv2D("conv", 512, 3, input_sample_shape=(256, 4, 4)))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 3))
    net.compile(optimizer.SGD(0.1), parallel=ranks(bucket=1 << 20))
    return net


def test_without_other_ranks_nothing_is_summed():
    program = planned(mlp(ranks(size=1)))
    assert not [i for i in program.instructions if kind_of(i)]
    assert mlp(None).plan_batch(8).in_flight_bytes == 0


def test_each_sum_is_begun_once_and_waited_for_once_before_its_update():
    program = planned(mlp(ranks()))
    begun = {program.instructions[step].operands[1].block: step for step in steps(program, BEGIN)}
    waited = {program.instructions[step].operands[1].block: step for step in steps(program, WAIT)}
    assert begun.keys() == waited.keys()
    assert all(begun[block] < waited[block] for block in begun)
    updated = {}
    for step, instruction in enumerate(program.instructions):
        if instruction.kernel == "sgd":
            updated.setdefault(instruction.operands[0].block, step)
    summed = {program.instructions[step].operands[0].block: step for step in waited.values()}
    assert updated.keys() == summed.keys()
    assert all(summed[block] < updated[block] for block in summed)


def test_the_walk_back_goes_on_while_a_gradient_is_summed():
    program = planned(mlp(ranks(bucket=1)))
    first = steps(program, BEGIN)[0]
    end = next(
        s
        for s in steps(program, WAIT)
        if program.instructions[s].operands[1] == program.instructions[first].operands[1]
    )
    between = {i.kernel for i in program.instructions[first:end]}
    assert {"matmul", "tanh_derivative"} <= between


def test_polls_stand_behind_what_runs_meanwhile():
    program = planned(mlp(ranks(bucket=1)))
    level = 0
    for instruction, behind in pairwise(program.instructions):
        level += {BEGIN: 1, WAIT: -1}.get(kind_of(instruction), 0)
        if not kind_of(instruction):
            assert (kind_of(behind) == POLL) == (level > 0)


def test_small_gradients_are_summed_together():
    assert len(steps(planned(mlp(ranks(bucket=1))), BEGIN)) == 6
    assert len(steps(planned(mlp(ranks(bucket=2000))), BEGIN)) == 3  # one of all vectors and the last weight, two alone
    assert len(steps(planned(mlp(ranks(bucket=1 << 20))), BEGIN)) == 1


@pytest.mark.parametrize("limit", [12_000, 100_000])
def test_what_is_under_way_has_a_limit(limit):
    plan = mlp(ranks(bucket=1, in_flight=limit), (60, 50, 40, 30)).plan_batch(8)
    alone = mlp(None, (60, 50, 40, 30)).plan_batch(8)
    largest = 60 * 50 * 4
    assert 0 < plan.in_flight_bytes <= max(limit, largest + largest // 2 + 64)
    assert plan.arena_bytes <= alone.arena_bytes + plan.in_flight_bytes + 4096
    assert "in flight" in plan.summary()


def test_a_lower_limit_waits_sooner():
    high, low = (planned(mlp(ranks(bucket=1, in_flight=limit), (60, 50, 40, 30))) for limit in (1 << 20, 20_000))
    assert most_in_flight(low) <= 20_000 < most_in_flight(high)
    assert digest(low) == digest(high)


@pytest.mark.parametrize(
    ("limit", "bucket", "sizes"),
    [
        (1, 6000, (60, 50, 40, 30)),
        (12_000, 1, (60, 50, 40, 30)),
        (30_000, 1, (60, 50, 40, 30)),
        (3000, 20_000, (20, 900, 900, 900, 3)),
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


def test_tiles_are_summed_each_by_itself_and_the_gradient_never_exists():
    sizes = (1100, 1000, 7)
    program = planned(mlp(ranks(bucket=1 << 20), sizes))
    whole = 1100 * 1000 * 4
    assert len(steps(program, BEGIN)) >= 5
    assert max(program.sizes.values()) < whole / 3


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


def test_large_filters_are_summed_in_pieces():
    net = many_filters()
    plan = net.plan_batch(2)
    landings = [plan.placed.planned.instructions[s].operands[1].nbytes for s in steps(plan.placed.planned, BEGIN)]
    assert len(landings) >= 4
    assert max(landings) <= 1 << 20
    plan.check()


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


def placed_of():
    placed = mlp(ranks(bucket=1)).plan_batch(8).placed
    check_reads(placed.rewritten, placed.planned, placed.offsets)
    return placed


def test_memory_that_is_used_while_it_is_summed_is_refused():
    """A tensor that lives meanwhile gets the bytes of what comes in from the others."""
    placed = placed_of()
    program = placed.planned
    first = steps(program, BEGIN)[0]
    landing = program.instructions[first].operands[1].block
    other = next(
        o.block
        for i in program.instructions[first + 1 :]
        for o in i.writes
        if not kind_of(i) and o.block in placed.offsets and o.block != landing
    )
    offsets = {**placed.offsets, other: placed.offsets[landing]}
    with pytest.raises(PlanError, match=r"wanted the bytes left alone that sum \d+ reads or writes until it is waited"):
        check_reads(placed.rewritten, program, offsets)


def moved(program, step, to):
    instructions = list(program.instructions)
    instructions.insert(to, instructions.pop(step))
    return replace(program, instructions=tuple(instructions))


def test_an_update_before_its_sum_is_there_is_refused():
    placed = placed_of()
    update = next(s for s, i in enumerate(placed.planned.instructions) if i.kernel == "sgd")
    summed = placed.planned.instructions[update].operands[0].block
    wait = next(s for s in steps(placed.planned, WAIT) if placed.planned.instructions[s].operands[0].block == summed)
    with pytest.raises(PlanError, match=r"sgd, layer 'dense1'.*left alone that sum \d+ reads or writes"):
        check_reads(placed.rewritten, moved(placed.planned, update, wait), placed.offsets)


def test_a_sum_that_is_begun_before_the_gradient_is_there_is_refused():
    placed = placed_of()
    with pytest.raises(PlanError, match="wanted"):
        check_reads(placed.rewritten, moved(placed.planned, steps(placed.planned, BEGIN)[0], 1), placed.offsets)


def test_a_sum_that_is_never_waited_for_is_refused():
    placed = placed_of()
    last = steps(placed.planned, WAIT)[-1]
    left = [i for s, i in enumerate(placed.planned.instructions) if s != last]
    with pytest.raises(
        PlanError, match=r"sum \d+ reads or writes until it is waited for|sum \d+: wanted it waited for"
    ):
        check_reads(placed.rewritten, replace(placed.planned, instructions=tuple(left)), placed.offsets)


def test_sums_in_another_order_than_other_ranks_have_are_refused():
    placed = placed_of()
    first, second = steps(placed.planned, BEGIN)[:2]
    with pytest.raises(PlanError, match=r"'turn'|left alone"):
        check_reads(placed.rewritten, moved(placed.planned, first, second), placed.offsets)


def test_a_poll_with_a_tensor_is_refused():
    placed = placed_of()
    step = steps(placed.planned, POLL)[0]
    instructions = list(placed.planned.instructions)
    wait = placed.planned.instructions[steps(placed.planned, WAIT)[0]]
    instructions[step] = replace(instructions[step], operands=wait.operands[:1])
    with pytest.raises((PlanError, ValueError)):
        check_reads(placed.rewritten, replace(placed.planned, instructions=tuple(instructions)), placed.offsets)


def test_parts_cover_all_elements():
    from singa_lite.kernels.collective import parts_of

    for elements in (0, 1, 2, 5, 7, 100):
        for count in (1, 2, 3, 4, 7):
            found = np.concatenate([np.arange(elements)[part] for part in parts_of(elements, count)])
            assert np.array_equal(found, np.arange(elements))


def test_pieces_of_one_gradient_are_under_way_together():
    net = many_filters()
    program = planned(net, 2)
    first_wait = steps(program, WAIT)[0]
    assert sum(step < first_wait for step in steps(program, BEGIN)) >= 4
