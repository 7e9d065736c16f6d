"""budget_profile=True: repeats are chosen by measured seconds, and measuring changes nothing else."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from nets import bits, state_of
from singa_lite import device, optimizer
from singa_lite.graph_parts import profiled_costs
from test_memory_budget import COUNT, SETS, convolutional, data, trained

#: Of the free plan's total.
SHARE = 0.85


@cache
def budget_of(kernels: str) -> int:
    return int(SHARE * convolutional(kernels).plan_batch(COUNT).total_bytes)


@pytest.mark.parametrize("kernels", SETS)
def test_training_gives_equal_bits_within_the_budget(kernels):
    budget = budget_of(kernels)
    net = convolutional(kernels, memory_budget=budget, budget_profile=True)
    net.device.pool.set_limit(budget)  # of all that it ever takes
    by_rule = convolutional(kernels, memory_budget=budget)
    by_rule.plan_batch(COUNT)
    planned = net.plan_batch(COUNT)
    assert planned.recomputed > 0
    assert planned.costs.startswith("measured")
    assert "no room" not in planned.costs
    assert planned.costs in planned.summary()
    assert net.device.pool.used == by_rule.device.pool.used
    assert trained(net) == trained(convolutional(kernels))
    assert net.memory_plan.estimated_slowdown > 0


def test_measuring_touches_no_value_of_the_net():
    free, net = convolutional(), convolutional(memory_budget=budget_of("numpy"), budget_profile=True)
    for one in (free, net):
        one.train_one_batch(*data(7))
    before = state_of(net)
    assert before == state_of(free)
    assert net.plan_batch(COUNT).recomputed > 0
    assert state_of(net) == before
    x, y = data(7, 1)
    assert [bits(one.train_one_batch(x, y)[0]) for one in (free,)] == [bits(net.train_one_batch(x, y)[0])]
    assert state_of(net) == state_of(free)


def test_a_step_that_fits_measures_nothing(monkeypatch):
    monkeypatch.setattr(profiled_costs, "timed", pytest.fail)
    free = convolutional().plan_batch(COUNT)
    net = convolutional(memory_budget=2 * free.total_bytes, budget_profile=True)
    plan = net.plan_batch(COUNT)
    assert plan.costs == "nothing was measured"
    assert plan.recomputed == 0


def repeated_with(monkeypatch: pytest.MonkeyPatch, slow: str) -> tuple[set[str], float]:
    """Kernels that a plan repeats, and its slowdown, where one kernel is said to take a thousand times as long."""

    def taken(times: Any, call: Any, block: Any) -> float:
        return 1.0 if call.kernel == slow else 1e-3

    monkeypatch.setattr(profiled_costs.CallTimes, "_least", taken)
    net = convolutional("numpy", memory_budget=budget_of("numpy"), budget_profile=True)
    plan = net.plan_batch(COUNT)
    return {row.kernel for row in plan.repeats}, plan.estimated_slowdown


def test_what_was_measured_decides_what_is_repeated(monkeypatch):
    repeated, slowdown = repeated_with(monkeypatch, "")
    assert {"batch_normalize_activation", "conv2d"} <= repeated
    assert 0 < slowdown < 1
    for kernel in ("batch_normalize_activation", "conv2d"):
        others, slowdown = repeated_with(monkeypatch, kernel)
        assert others
        assert kernel not in others
        assert 0 < slowdown < 0.5


def test_seconds_of_repeats_and_of_the_step_are_the_measured_ones(monkeypatch):
    monkeypatch.setattr(profiled_costs.CallTimes, "_least", lambda times, call, block: 1.0)
    plan = convolutional("numpy", memory_budget=budget_of("numpy"), budget_profile=True).plan_batch(COUNT)
    free = convolutional("numpy").plan_batch(COUNT)
    assert {row.seconds for row in plan.repeats} == {1.0}
    assert plan.estimated_slowdown == pytest.approx(plan.operations / free.operations - 1)


def test_equal_calls_are_measured_once_for_all_plans(monkeypatch):
    measured: list[Any] = []

    def least(times: Any, call: Any, block: Any) -> float:
        measured.append(profiled_costs.key_of(call))
        return 1e-3

    monkeypatch.setattr(profiled_costs.CallTimes, "_least", least)
    net = convolutional("numpy", memory_budget=budget_of("numpy"), budget_profile=True)
    plan = net.plan_batch(COUNT)
    assert len(measured) == len(set(measured)) > 0
    assert len(measured) < plan.operations
    net.train_one_batch(*data(COUNT))
    assert net.memory_plan.repeats == plan.repeats
    assert len(measured) == len(set(measured))


def test_calls_that_have_no_room_go_by_the_rule_in_proportion(monkeypatch):
    monkeypatch.setattr(profiled_costs.CallTimes, "_least", lambda times, call, block: 7 * profiled_costs.seconds(call))
    net = convolutional("numpy", memory_budget=budget_of("numpy"), budget_profile=True)
    costs = profiled_costs.ProfiledCosts
    room = COUNT * 8 * 20 * 24 * 4 + 4096  # of an image of eight channels, and no more
    monkeypatch.setattr(
        "singa_lite.training.step_records.ProfiledCosts", lambda times, calls, _: costs(times, calls, lambda: room)
    )
    plan = net.plan_batch(COUNT)
    assert "no room to measure" in plan.costs
    repeats = [instruction for instruction in plan.placed.planned.instructions if instruction.repeats is not None]
    for row, repeat in zip(plan.repeats, repeats, strict=True):
        assert row.seconds == pytest.approx(7 * profiled_costs.seconds(repeat), rel=1e-12)


def test_a_device_limit_takes_measured_costs_too():
    budget = budget_of("numpy")
    net = convolutional("numpy")
    net.device.pool.set_limit(budget)
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), budget_profile=True)
    assert net.plan_batch(COUNT).costs.startswith("measured")
    assert trained(net) == trained(convolutional("numpy"))


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"budget_profile": True}, ValueError, "wanted a memory_budget"),
        ({"budget_profile": True, "graph": False}, ValueError, "wanted graph=True"),
        ({"budget_profile": 1, "memory_budget": "1 GiB"}, TypeError, "True or False"),
        ({"budget_profile": "yes", "memory_budget": "1 GiB"}, TypeError, "True or False"),
        ({"budget_profile": None, "memory_budget": "1 GiB"}, TypeError, "True or False"),
    ],
)
def test_what_it_does_not_fit_is_refused(options, kind, words):
    net = convolutional()
    was = net.optimizer
    with pytest.raises(kind, match=words):
        net.compile(optimizer.Adam(), **options)
    assert net.optimizer is was
    net.train_one_batch(*data(3))


def test_a_copy_and_another_device_go_on_with_it():
    net = convolutional("numpy", memory_budget=budget_of("numpy"), budget_profile=True)
    assert deepcopy(net).plan_batch(COUNT).costs.startswith("measured")
    net.to_device(device.new_cpu(kernels="numpy"))
    assert net.plan_batch(COUNT).costs.startswith("measured")
