"""Attention, recurrent layers, group normalization and 16 bits under budgets: equal bits, and planted faults caught.

The faults are planted in the very plans that these nets get: a repeat that is left out, of the wrong original, with
another setting, before what it reads is there, or into bytes that are in use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from nets import bits, state_of
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.common.strides import span
from singa_lite.graph_parts.budget_error import BudgetError
from singa_lite.memory.problem import PlanError
from singa_lite.memory_plan import MemoryPlan
from singa_lite.operation import Operand
from singa_lite.passes.program import Program
from singa_lite.passes.read_from import check_reads

COUNT = 5


def built(*made: Any, **compiling: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), seed=3)
    for layer in made:
        net.add(layer)
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 3))
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), **compiling)
    return net


def attention(**compiling: Any) -> FeedForwardNet:
    return built(
        layers.MultiHeadAttention("one", 4, causal=True, kv_heads=2, dropout=0.2, input_sample_shape=(17, 8)),
        layers.LayerNormalization("norm"),
        layers.MultiHeadAttention("two", 2, dropout=0.1, rotary=True),
        layers.Activation("gelu", "gelu"),
        layers.MultiHeadAttention("three", 2),
        **compiling,
    )


def recurrent(**compiling: Any) -> FeedForwardNet:
    return built(
        layers.LSTM("lstm", 11, return_sequences=True, input_sample_shape=(17, 8)),
        layers.Dropout("drop", 0.3),
        layers.GRU("gru", 9, return_sequences=True),
        layers.Activation("tanh", "tanh"),
        layers.LSTM("last", 7, return_sequences=True),
        **compiling,
    )


def grouped(**compiling: Any) -> FeedForwardNet:
    blocks = [layers.Conv2D("conv0", 6, 3, input_sample_shape=(2, 9, 11))]
    for number in range(1, 4):
        blocks += [
            layers.GroupNormalization(f"norm{number}", 3),
            layers.Activation(f"act{number}"),
            layers.Conv2D(f"conv{number}", 6, 3),
        ]
    return built(*blocks, **compiling)


def half(**compiling: Any) -> FeedForwardNet:
    """Activations, derivatives and repeats of them in float16, whose losses are scaled."""
    blocks = [layers.Dense("dense0", 24, input_sample_shape=(17, 8))]
    for number in range(1, 3):
        blocks += [layers.LayerNormalization(f"norm{number}"), layers.Activation(f"act{number}", "tanh")]
        blocks += [layers.Dropout(f"drop{number}", 0.2), layers.Dense(f"dense{number}", 24)]
    return built(*blocks, precision="float16", **compiling)


SHAPES = {attention: (17, 8), recurrent: (17, 8), grouped: (2, 9, 11), half: (17, 8)}
each_net = pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
pytestmark = pytest.mark.filterwarnings("ignore:compile precision='float16'")
Make = Callable[..., FeedForwardNet]


def trained(net: FeedForwardNet, shape: tuple[int, ...]) -> list[Any]:
    seen: list[Any] = []
    for step in range(3):
        rng = np.random.default_rng(step)
        count = COUNT - (step == 1)
        x, y = rng.standard_normal((count, *shape), np.float32), rng.standard_normal((count, 3), np.float32)
        seen += [bits(net.train_one_batch(x, y)[0]), bits(net.evaluate_one_batch(x, y)[0])]
    return [*seen, state_of(net)]


@cache
def budgets_of(make: Make) -> tuple[int, int]:
    """The least, and one halfway to the free plan's."""
    free = make().plan_batch(COUNT)
    with pytest.raises(BudgetError) as error:
        make().plan_batch(COUNT, memory_budget=1)
    least = error.value.total_bytes
    assert least < 0.95 * free.total_bytes
    return least, (least + free.total_bytes) // 2


@each_net
def test_budgets_give_equal_bits(make):
    wanted = trained(make(), SHAPES[make])
    for nbytes in budgets_of(make)[: 1 if make is half else 2]:  # whose gradients have two forms to search in
        net = make(memory_budget=nbytes)
        assert net.plan_batch(COUNT).recomputed > 0
        assert trained(net, SHAPES[make]) == wanted
        assert net.device.pool.high_water <= nbytes


@cache
def least_plan(make: Make) -> MemoryPlan:
    plan = make().plan_batch(COUNT, memory_budget=budgets_of(make)[0])
    check_reads(plan.placed.rewritten, plan.placed.planned, plan.placed.offsets, plan.placed.host_offsets)
    return plan


def repeats_in(planned: Program) -> list[int]:
    return [step for step, instruction in enumerate(planned.instructions) if instruction.repeats is not None]


@each_net
def test_the_least_plan_repeats_what_the_net_is_made_of(make):
    wanted = {"attention": {"attention"}, "recurrent": {"lstm", "gru"}, "grouped": {"group_norm"}, "half": {"tanh"}}
    again = [least_plan(make).placed.planned.instructions[step] for step in steps_of(make)]
    kernels = {instruction.kernel for instruction in again}
    for kernel in wanted[make.__name__]:
        assert any(kernel in name for name in kernels), kernels
    dtypes = {str(operand.dtype) for instruction in again for operand in instruction.writes}
    assert ("float16" in dtypes) == (make is half), dtypes


def steps_of(make: Make) -> list[int]:
    found = repeats_in(least_plan(make).placed.planned)
    assert found
    return found


def refused(plan: MemoryPlan, instructions: list[Any], offsets: dict[int, int] | None = None) -> None:
    placed = plan.placed
    made = placed.planned.with_instructions(instructions)
    with pytest.raises(PlanError, match="wanted"):
        check_reads(placed.rewritten, made, placed.offsets if offsets is None else offsets, placed.host_offsets)


@each_net
def test_a_repeat_that_is_left_out(make):
    """But for one whose values still lie where it writes them: then every reader gets the same without it."""
    plan = least_plan(make)
    calls = list(plan.placed.planned.instructions)
    needed = [step for step in steps_of(make) if not is_there_already(plan, step)]
    assert needed
    for step in needed:
        refused(plan, calls[:step] + calls[step + 1 :])


def is_there_already(plan: MemoryPlan, step: int) -> bool:
    """Whether the last that was written to each place that a repeat writes to is what it writes."""
    calls = plan.placed.planned.instructions
    original = calls[step].repeats
    for number, operand in enumerate(calls[step].writes):
        start, stop = place(plan, operand)
        writers = (
            (call, at, place(plan, other))
            for call in reversed(calls[:step])
            for at, other in enumerate(call.writes)
            if other.block in plan.placed.offsets
        )
        last = next(((call, at, span) for call, at, span in writers if span[0] < stop and start < span[1]), None)
        if last is None or last[1:] != (number, (start, stop)) or original not in (last[0].number, last[0].repeats):
            return False
    return True


def place(plan: MemoryPlan, operand: Operand) -> tuple[int, int]:
    """The bytes of the arena from its first element to its last."""
    start = plan.placed.offsets[operand.block] + operand.offset
    reach = span(operand.shape, operand.strides, operand.dtype.itemsize)
    return start + reach.start, start + reach.stop


@each_net
def test_a_repeat_of_the_wrong_original_and_with_another_setting(make):
    plan = least_plan(make)
    calls = list(plan.placed.planned.instructions)
    numbers = [call.number for call in plan.placed.rewritten.instructions]
    for step in steps_of(make):
        wrong = next(number for number in numbers if number != calls[step].repeats)
        refused(plan, [*calls[:step], replace(calls[step], repeats=wrong), *calls[step + 1 :]])
        other = replace(calls[step], settings={**calls[step].settings, "another": 3.0})
        refused(plan, [*calls[:step], other, *calls[step + 1 :]])


@each_net
def test_a_repeat_before_anything_is_there(make):
    """But for those that read what was there before the step."""
    plan = least_plan(make)
    calls = list(plan.placed.planned.instructions)
    early = [step for step in steps_of(make) if any(o.block in plan.placed.offsets for o in calls[step].reads)]
    assert early
    for step in early:
        refused(plan, [calls[step], *calls[:step], *calls[step + 1 :]])


@each_net
def test_a_repeat_into_bytes_that_are_in_use(make):
    """Over what the call that reads it reads beside it."""
    plan, planted = least_plan(make), 0
    placed = plan.placed
    for step in steps_of(make):
        made = {operand.block for operand in placed.planned.instructions[step].writes}
        for reader in placed.planned.instructions[step + 1 :]:
            read = {operand.block for operand in reader.reads}
            beside = [b for b in read - made if b in placed.offsets]
            if read & made and beside:
                over = dict.fromkeys(read & made, placed.offsets[beside[0]])
                refused(plan, list(placed.planned.instructions), {**placed.offsets, **over})
                planted += 1
                break
    assert planted
