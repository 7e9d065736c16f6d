"""`compile(order="dependencies", workers=)`: the recorded order's results and memory, and no thread left at work."""

from __future__ import annotations

import copy
import threading
import time
from typing import Any

import numpy as np
import pytest

from nets import all_bits, bits, state_of
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, tensor
from singa_lite.common import threads
from singa_lite.compiler.order import parallel
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.errors import GraphError, NonFiniteError
from singa_lite.graph.budget_error import BudgetError

KERNELS = sorted({"numpy", device.cpu().kernels.name})
X = np.random.default_rng(1).standard_normal((3, 2, 9, 7)).astype("f")
Y = np.array([0, 3, 1])


@pytest.fixture(autouse=True)
def lanes_are_worth_it(monkeypatch):
    """Two threads wherever the tests run, and waves of lanes for the smallest calls."""
    monkeypatch.setattr(threads, "threads", lambda: 2)
    monkeypatch.setattr(parallel, "BEGIN", 0.0)
    monkeypatch.setattr(parallel, "JOIN", 1.0)


def net_of(kernels: str = "auto", on: Any = None, **options: Any) -> FeedForwardNet:
    """Two cells of three branches of unequal widths, with dropout."""
    on = device.new_cpu(kernels=kernels) if on is None else on
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=on, seed=4)
    x = net.add(layers.Conv2D("stem", 5, 3, input_sample_shape=(2, 9, 7)))
    for cell in range(2):
        outs = []
        for branch in range(3):
            y = net.add(layers.Conv2D(f"a{cell}{branch}", 3 + branch, 1), x)
            y = net.add(layers.BatchNormalization(f"n{cell}{branch}"), y)
            y = net.add(layers.Activation(f"r{cell}{branch}", "relu"), y)
            outs.append(net.add(layers.Conv2D(f"b{cell}{branch}", 4, 3), y))
        x = net.add(layers.Dropout(f"drop{cell}", 0.3), net.add(layers.Concat(f"cat{cell}", 1), outs))
    net.add(layers.Dense("scores", 4), net.add(layers.Flatten("flat"), x))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), **options)
    return net


def trained(net: FeedForwardNet, steps: int = 3) -> list[Any]:
    """Losses, what a prediction gives, and all values, as bits."""
    losses = [bits(net.train_one_batch(X, Y)[0]) for _ in range(steps)]
    return [losses, bits(net.predict(X)), net.evaluate(X, Y), state_of(net)]


def is_in_lanes(net: FeedForwardNet) -> bool:
    return any(len(wave) > 1 for wave in net.memory_plan.placed.planned.waves)


@pytest.mark.parametrize("kernels", KERNELS)
def test_lanes_give_the_recorded_order_s_results(monkeypatch, kernels):
    """One worker the very bits; several the same bits each time, also one after the other in checked mode."""
    plain, one = net_of(kernels), net_of(kernels, order="dependencies")
    wanted = trained(plain)
    assert trained(one) == wanted
    assert is_in_lanes(one)
    one.memory_plan.check()
    first, second = net_of(kernels, order="dependencies", workers=2), net_of(kernels, order="dependencies", workers=2)
    found = trained(first)
    assert is_in_lanes(first)
    assert trained(second) == found
    for name, value in plain.parameters().items():
        other = tensor.to_numpy(first.parameters()[name])
        np.testing.assert_allclose(other, tensor.to_numpy(value), rtol=1e-3, atol=1e-4)
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    assert trained(net_of(kernels, order="dependencies", workers=2)) == found
    monkeypatch.setenv("SINGA_LITE_PLAN", "off")
    assert trained(net_of(kernels, order="dependencies"), 1) == trained(net_of(kernels), 1)


def test_two_lanes_are_under_way_at_the_same_time(monkeypatch):
    """Each lane of the first wave waits for the other one to come."""
    meeting, honest, met = threading.Barrier(2, timeout=60), threads.in_lane, []

    def meeting_lane(launches: Any, number: int) -> None:
        if len(met) < 2:
            meeting.wait()
            met.append(threading.get_ident())
        honest(launches, number)

    net = net_of(order="dependencies", workers=2)
    wanted = trained(net_of(order="dependencies", workers=2))
    monkeypatch.setattr(threads, "in_lane", meeting_lane)
    assert trained(net) == wanted
    assert len(set(met)) == 2


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["caller", "worker"])
def test_what_fails_in_a_lane_reaches_the_caller_when_nobody_is_at_work(monkeypatch, kind, where):
    net, honest, busy, main = net_of(order="dependencies", workers=2), threads.in_lane, [], threading.get_ident()
    net.train_one_batch(X, Y)
    meeting = threading.Barrier(2, timeout=60)

    def failing(launches: Any, number: int) -> None:
        meeting.wait()
        if (threading.get_ident() == main) == (where == "caller"):
            raise kind("in a lane")
        busy.append(True)
        time.sleep(0.05)
        honest(launches, number)
        busy.pop()

    with monkeypatch.context() as during:
        during.setattr(threads, "in_lane", failing)
        with pytest.raises(kind, match="in a lane"):
            net.train_one_batch(X, Y)
        assert not busy
    with pytest.raises(GraphError, match="discard_step"):
        net.train_one_batch(X, Y)
    net.discard_step()
    net.train_one_batch(X, Y)


def test_parameters_are_as_they_were_where_the_loss_is_not_finite():
    net = net_of(order="dependencies", workers=2, on_nan="raise")
    net.train_one_batch(X, Y)
    before = all_bits(net.parameters())
    with pytest.raises(NonFiniteError):
        net.train_one_batch(np.full_like(X, np.nan), Y)
    assert all_bits(net.parameters()) == before


def test_a_copy_of_the_net_runs_as_it_does_and_a_file_says_nothing_of_workers():
    net = net_of(order="dependencies", workers=2)
    made = copy.deepcopy(net)
    assert trained(made) == trained(net)
    assert is_in_lanes(made)
    assert threads.share() == 0, "the command of the threads comes back"
    assert net.config() == net_of().config()


def test_an_answer_within_a_budget_is_refused():
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu())
    net.add(layers.Dense("scores", 4, input_sample_shape=(3,)))
    net.compile(optimizer.SGD(0.1), order="dependencies")
    for ask in (
        lambda: net.plan_batch(3, memory_budget="1 GiB"),
        lambda: net.budget_curve(3),
        lambda: net.largest_batch("1 MiB", extra_time=0.2),
    ):
        with pytest.raises(PlanError, match="memory_budget"):
            ask()


def test_a_device_s_limit_that_the_plan_does_not_keep_is_told():
    with pytest.raises(BudgetError):
        net_of(on=device.new_cpu(limit=200_000), order="dependencies").train_one_batch(X, Y)
