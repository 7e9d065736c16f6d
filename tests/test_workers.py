"""`compile(order="dependencies", workers=)`: the recorded order's results and memory, and no thread left at work."""

from __future__ import annotations

import copy
import threading
import time
from typing import Any

import numpy as np
import pytest

from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, tensor
from singa_lite.common import threads
from singa_lite.errors import GraphError, NonFiniteError
from singa_lite.graph_parts.budget_error import BudgetError
from singa_lite.memory.problem import PlanError
from singa_lite.passes import parallel

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


def values(net: FeedForwardNet) -> dict[Any, bytes]:
    found = {
        **parameters(net),
        **{(layer.name, name): s for layer in net.layers.values() for name, s in layer.states.items()},
    }
    return {name: tensor.to_numpy(value).tobytes() for name, value in found.items()}


def parameters(net: FeedForwardNet) -> dict[Any, Any]:
    return dict(zip(net.param_names(), net.param_values(), strict=True))


def trained(net: FeedForwardNet, steps: int = 3) -> list[Any]:
    """Losses, what a prediction gives, and all values, as bits."""
    losses = [tensor.to_numpy(net.train_one_batch(X, Y)[0]).tobytes() for _ in range(steps)]
    return [losses, tensor.to_numpy(net.predict(X)).tobytes(), net.evaluate(X, Y), values(net)]


def is_in_lanes(net: FeedForwardNet) -> bool:
    return any(len(wave) > 1 for wave in net.memory_plan.placed.planned.waves)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("plan", ["", "off"])
def test_one_worker_gives_the_recorded_order_s_bits(monkeypatch, kernels, plan):
    monkeypatch.setenv("SINGA_LITE_PLAN", plan)
    net = net_of(kernels, order="dependencies")
    assert trained(net) == trained(net_of(kernels))
    assert is_in_lanes(net) == (not plan)
    net.memory_plan.check()


@pytest.mark.parametrize("kernels", KERNELS)
def test_workers_give_the_same_bits_each_time_and_one_after_the_other(monkeypatch, kernels):
    """Checked mode runs the very launches one by one, and looks for bytes that they should not touch."""
    first, second = net_of(kernels, order="dependencies", workers=2), net_of(kernels, order="dependencies", workers=2)
    wanted = trained(first)
    assert is_in_lanes(first)
    assert trained(second) == wanted
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    assert trained(net_of(kernels, order="dependencies", workers=2)) == wanted


@pytest.mark.parametrize("kernels", KERNELS)
def test_workers_agree_with_the_recorded_order(kernels):
    nets = net_of(kernels, order="dependencies", workers=2), net_of(kernels)
    for _ in range(4):
        one, other = (float(net.train_one_batch(X, Y)[0]) for net in nets)
        assert one == pytest.approx(other, rel=1e-4)
    for name, value in parameters(nets[0]).items():
        other = tensor.to_numpy(parameters(nets[1])[name])
        np.testing.assert_allclose(tensor.to_numpy(value), other, rtol=1e-3, atol=1e-4)


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


def test_lanes_need_no_more_memory_where_it_counts(monkeypatch):
    monkeypatch.setattr(parallel, "SMALL", 0)
    plans = [net_of(**options).plan_batch(3, samples=3) for options in ({}, {"order": "dependencies", "workers": 2})]
    assert plans[1].order == "dependencies"
    assert plans[1].floor_bytes <= plans[0].floor_bytes * 1.01  # scratch may differ by threads
    for plan in plans:
        plan.check()


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
    before = {name: tensor.to_numpy(value).copy() for name, value in parameters(net).items()}
    with pytest.raises(NonFiniteError):
        net.train_one_batch(np.full_like(X, np.nan), Y)
    for name, value in parameters(net).items():
        np.testing.assert_array_equal(tensor.to_numpy(value), before[name])


def test_a_copy_of_the_net_runs_as_it_does():
    net = net_of(order="dependencies", workers=2)
    made = copy.deepcopy(net)
    assert trained(made) == trained(net)
    assert is_in_lanes(made)


def test_the_profile_runs_the_launches_of_the_plan():
    net = net_of(order="dependencies", workers=2)
    net.train_one_batch(X, Y)
    profile = net.training_graph.profile(1, peaks=False)
    assert len(profile.operations) == net.memory_plan.operations


def test_an_answer_within_a_budget_is_refused():
    net = net_of(order="dependencies")
    for ask in (
        lambda: net.plan_batch(3, memory_budget="1 GiB"),
        lambda: net.budget_curve(3),
        lambda: net.largest_batch("1 GiB", extra_time=0.2),
    ):
        with pytest.raises(PlanError, match=r"memory_budget: wanted order='recorded'"):
            ask()


def test_a_device_s_limit_that_the_plan_does_not_keep_is_told():
    with pytest.raises(BudgetError):
        net_of(on=device.new_cpu(limit=200_000), order="dependencies").train_one_batch(X, Y)


def test_a_net_of_workers_is_saved_as_any(tmp_path):
    """How many work is of the machine: a file says nothing of it."""
    net, plain = net_of(order="dependencies", workers=2), net_of()
    assert net.config() == plain.config()


def test_the_command_of_the_threads_comes_back_after_a_lane():
    net = net_of(order="dependencies", workers=2)
    net.train_one_batch(X, Y)
    assert threads.share() == 0
