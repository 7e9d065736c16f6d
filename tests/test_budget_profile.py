"""budget_profile=True: repeats are chosen by measured seconds, and measuring changes nothing else."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from budget_nets import BRANCHES, branches
from misuse import refused
from nets import bits, state_of
from singa_lite import device, optimizer
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.graph import profiled_costs

COUNT = BRANCHES.count


@cache
def budget_of(kernels: str = "numpy") -> int:
    return int(0.85 * branches(kernels).plan_batch(COUNT).total_bytes)


def profiled(kernels: str = "numpy") -> Any:
    return branches(kernels, memory_budget=budget_of(kernels), budget_profile=True)


def measured_by(monkeypatch: pytest.MonkeyPatch, rule: Any) -> MemoryPlan:
    """The plan where rule(call) is said to be measured."""
    monkeypatch.setattr(profiled_costs.CallTimes, "_least", lambda times, call, block: rule(call))
    return profiled().plan_batch(COUNT)


@pytest.mark.parametrize("kernels", ["numpy", "onednn"])
def test_training_gives_equal_bits_within_the_budget_and_measuring_touches_no_value(kernels):
    free, net, by_rule = branches(kernels), profiled(kernels), branches(kernels, memory_budget=budget_of(kernels))
    net.device.pool.set_limit(budget_of(kernels))  # of all that it ever takes
    by_rule.plan_batch(COUNT)
    before = state_of(net)
    planned = net.plan_batch(COUNT)
    assert planned.recomputed > 0
    assert planned.costs.startswith("measured") and "no room" not in planned.costs
    assert planned.costs in planned.summary()
    assert (net.device.pool.used, state_of(net)) == (by_rule.device.pool.used, before)
    for seed in range(2):
        assert BRANCHES.step(net, seed) == BRANCHES.step(free, seed)
    assert state_of(net) == state_of(free)
    assert net.memory_plan.estimated_slowdown > 0


def test_a_step_that_fits_measures_nothing(monkeypatch):
    monkeypatch.setattr(profiled_costs, "timed", pytest.fail)
    plan = branches(memory_budget=2 * budget_of(), budget_profile=True).plan_batch(COUNT)
    assert (plan.costs, plan.recomputed) == ("nothing was measured", 0)


def test_what_was_measured_decides_what_is_repeated(monkeypatch):
    def repeated(slow: str) -> tuple[set[str], float]:
        """Where one kernel is said to take a thousand times as long."""
        plan = measured_by(monkeypatch, lambda call: 1.0 if call.kernel == slow else 1e-3)
        return {row.kernel for row in plan.repeats}, plan.estimated_slowdown

    found, slowdown = repeated("")
    assert {"batch_normalize_activation", "conv2d"} <= found
    assert 0 < slowdown < 1
    for kernel in ("batch_normalize_activation", "conv2d"):
        others, slowdown = repeated(kernel)
        assert others
        assert kernel not in others
        assert 0 < slowdown < 0.5


def test_seconds_of_repeats_and_of_the_step_are_the_measured_ones(monkeypatch):
    plan = measured_by(monkeypatch, lambda call: 1.0)
    free = branches().plan_batch(COUNT)
    assert {row.seconds for row in plan.repeats} == {1.0}
    assert plan.estimated_slowdown == pytest.approx(plan.operations / free.operations - 1)


def test_equal_calls_are_measured_once_for_all_plans(monkeypatch):
    measured: list[Any] = []

    def least(times: Any, call: Any, block: Any) -> float:
        measured.append(profiled_costs.key_of(call))
        return 1e-3

    monkeypatch.setattr(profiled_costs.CallTimes, "_least", least)
    net = profiled()
    plan = net.plan_batch(COUNT)
    assert 0 < len(measured) == len(set(measured)) < plan.operations
    BRANCHES.step(net)
    assert net.memory_plan.repeats == plan.repeats
    assert len(measured) == len(set(measured))


def test_calls_that_have_no_room_go_by_the_rule_in_proportion(monkeypatch):
    costs = profiled_costs.ProfiledCosts
    room = COUNT * 8 * 20 * 24 * 4 + 4096  # of an image of eight channels, and no more
    monkeypatch.setattr(
        "singa_lite.training.steps.step_records.ProfiledCosts",
        lambda times, calls, _: costs(times, calls, lambda: room),
    )
    plan = measured_by(monkeypatch, lambda call: 7 * profiled_costs.seconds(call))
    assert "no room to measure" in plan.costs
    repeats = [instruction for instruction in plan.placed.planned.instructions if instruction.repeats is not None]
    for row, repeat in zip(plan.repeats, repeats, strict=True):
        assert row.seconds == pytest.approx(7 * profiled_costs.seconds(repeat), rel=1e-12)


def test_a_device_limit_a_copy_and_another_device_take_measured_costs_too():
    limited, free = branches(), branches()
    limited.device.pool.set_limit(budget_of())
    limited.compile(optimizer.SGD(lr=0.05, momentum=0.9), budget_profile=True)
    net = profiled()
    copied = deepcopy(net)
    net.to_device(device.new_cpu(kernels="numpy"))
    for one in (limited, copied, net):
        assert one.plan_batch(COUNT).costs.startswith("measured")
    assert BRANCHES.step(limited) == BRANCHES.step(free)


@pytest.mark.parametrize(
    ("options", "kind", "word"),
    [
        ({"budget_profile": True}, ValueError, "memory_budget"),
        ({"budget_profile": True, "graph": False}, ValueError, "graph=True"),
        ({"budget_profile": 1, "memory_budget": "1 GiB"}, TypeError, "1"),
        ({"budget_profile": "yes", "memory_budget": "1 GiB"}, TypeError, "'yes'"),
        ({"budget_profile": None, "memory_budget": "1 GiB"}, TypeError, "None"),
    ],
)
def test_what_it_does_not_fit_is_refused(options, kind, word):
    net = branches()
    was = net.optimizer
    refused(lambda: net.compile(optimizer.Adam(), **options), kind, "budget_profile", word)
    assert net.optimizer is was
    assert bits(net.train_one_batch(*BRANCHES.data(3))[0]) == bits(branches().train_one_batch(*BRANCHES.data(3))[0])
