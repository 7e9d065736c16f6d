"""Faults planted in the plans that nets get within their least budget, all caught: of attention, recurrent layers,
group normalization and 16 bits. A repeat is left out, of the wrong original, with another setting, before what it
reads is there, or into bytes that are in use."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from budget_nets import LAYERS
from singa_lite.common.strides import span
from singa_lite.compiler.ir.operation import Operand
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.read_from import check_reads
from singa_lite.compiler.report.memory_plan import MemoryPlan

each_net = pytest.mark.parametrize("name", LAYERS)
pytestmark = pytest.mark.filterwarnings("ignore:compile precision='float16'")


@cache
def least_plan(name: str) -> tuple[MemoryPlan, list[Any], list[int]]:
    """The plan, its calls, and the steps of those that are repeats."""
    subject = LAYERS[name]
    plan = subject.make().plan_batch(subject.count, memory_budget=subject.least())
    check_reads(plan.placed.rewritten, plan.placed.planned, plan.placed.offsets, plan.placed.host_offsets)
    calls = list(plan.placed.planned.instructions)
    steps = [step for step, call in enumerate(calls) if call.repeats is not None]
    assert steps
    return plan, calls, steps


def refused(plan: MemoryPlan, instructions: list[Any], offsets: dict[int, int] | None = None) -> None:
    placed = plan.placed
    made = placed.planned.with_instructions(instructions)
    with pytest.raises(PlanError):
        check_reads(placed.rewritten, made, placed.offsets if offsets is None else offsets, placed.host_offsets)


@each_net
def test_the_least_plan_repeats_what_the_net_is_made_of(name):
    wanted = {"attention": {"attention"}, "recurrent": {"lstm", "gru"}, "grouped": {"group_norm"}, "half": {"tanh"}}
    _, calls, steps = least_plan(name)
    kernels = {calls[step].kernel for step in steps}
    assert all(any(part in kernel for kernel in kernels) for part in wanted[name]), kernels
    dtypes = {str(operand.dtype) for step in steps for operand in calls[step].writes}
    assert ("float16" in dtypes) == (name == "half"), dtypes


@each_net
def test_a_repeat_that_is_left_out(name):
    """But for one whose values still lie where it writes them: then every reader gets the same without it."""
    plan, calls, steps = least_plan(name)
    needed = [step for step in steps if not is_there_already(plan, step)]
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
def test_a_repeat_of_the_wrong_original_with_another_setting_or_too_early(name):
    """Not too early are those that read what was there before the step."""
    plan, calls, steps = least_plan(name)
    numbers = [call.number for call in plan.placed.rewritten.instructions]
    early = [step for step in steps if any(o.block in plan.placed.offsets for o in calls[step].reads)]
    assert early
    for step in early:
        refused(plan, [calls[step], *calls[:step], *calls[step + 1 :]])
    for step in steps:
        wrong = next(number for number in numbers if number != calls[step].repeats)
        for fields in ({"repeats": wrong}, {"settings": {**calls[step].settings, "another": 3.0}}):
            refused(plan, [*calls[:step], replace(calls[step], **fields), *calls[step + 1 :]])


@each_net
def test_a_repeat_into_bytes_that_are_in_use(name):
    """Over what the call that reads it reads beside it."""
    (plan, calls, steps), planted = least_plan(name), 0
    placed = plan.placed
    for step in steps:
        made = {operand.block for operand in calls[step].writes}
        for reader in calls[step + 1 :]:
            read = {operand.block for operand in reader.reads}
            beside = [b for b in read - made if b in placed.offsets]
            if read & made and beside:
                over = dict.fromkeys(read & made, placed.offsets[beside[0]])
                refused(plan, calls, {**placed.offsets, **over})
                planted += 1
                break
    assert planted
