"""The memory plan says what a step takes: numbers worked out by hand, and measured in the pool."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from nets import state_of
from singa_lite import FeedForwardNet, autograd, device, layers, loss, metric, optimizer, tensor
from singa_lite.device import Device
from singa_lite.errors import GraphError
from singa_lite.memory.problem import PlanError
from singa_lite.memory_plan import MemoryPlan
from singa_lite.passes.program import requests

RNG = np.random.default_rng(5)


def lines(nbytes: int) -> int:
    """Bytes as the pool and the arena give them out."""
    return -(-nbytes // 64) * 64


def tiny() -> FeedForwardNet:
    """Two products, 20 -> 30 -> 7, with a tanh between; squared error; NumPy's kernels, whose scratch is known."""
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels="numpy"), seed=2)
    net.add(layers.Dense("first", 30, use_bias=False, input_sample_shape=(20,)))
    net.add(layers.Activation("tanh", "tanh"))
    net.add(layers.Dense("second", 7, use_bias=False))
    net.compile(optimizer.SGD(lr=0.01))
    return net


def convolutional() -> FeedForwardNet:
    """Everything that has a say in memory: state, random keys, scratch, views, a concatenation, momentum."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device.new_cpu(), seed=2)
    start = net.add(layers.Conv2D("stem", 6, 3, input_sample_shape=(3, 10, 12)))
    norm = net.add(layers.BatchNormalization("norm"), start)
    left = net.add(layers.Conv2D("left", 4, 3), net.add(layers.Activation("relu"), norm))
    right = net.add(layers.MaxPooling2D("right", 3, 1, pad=1), norm)
    joined = net.add(layers.Concat("joined", 1), [left, right])
    net.add(layers.Dropout("drop", 0.3), joined)
    net.add(layers.AvgPooling2D("pool", 4, 4, pad=0))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 5))
    net.compile(optimizer.Adam())
    return net


NETS: dict[str, Callable[[], FeedForwardNet]] = {"tiny": tiny, "convolutional": convolutional}
every_net = pytest.mark.parametrize("make", NETS.values(), ids=NETS.keys())


def batch(net: FeedForwardNet, count: int) -> tuple[np.ndarray, np.ndarray]:
    (shape,) = net.input_shapes().values()
    x = RNG.standard_normal((count, *shape)).astype("f")
    if isinstance(net.loss, loss.SquaredError):
        return x, RNG.standard_normal((count, 7)).astype("f")
    return x, RNG.integers(0, 5, count)


# --- by hand ------------------------------------------------------------------------------------------------


@pytest.fixture
def cpu() -> Device:
    return device.new_cpu()


def test_three_products_by_hand(cpu):
    x = tensor.zeros((4, 20), device=cpu)
    weights = [tensor.zeros(shape, device=cpu) for shape in ((20, 100), (100, 30), (30, 9))]
    with cpu.recording() as graph:
        y = x
        for weight in weights:
            y = autograd.matmul(y, weight)
    plan = graph.memory_plan
    wide, narrow, last = 1600, 480, 144  # (4, 100), (4, 30) and (4, 9); the last is the result
    assert plan.floor_bytes == plan.arena_bytes == plan.recorded_floor_bytes == plan.unshared_bytes == wide + 512
    assert (plan.gap_bytes, plan.proved, plan.operations, plan.order) == (0, True, 3, "recorded")
    assert plan.eager_bytes == wide + narrow  # x and the weights were there before
    assert plan.by_role == {
        "input": 4 * (80 + 2000 + 3000 + 270),
        "parameter": 0,
        "state": 0,
        "intermediate": wide + narrow,
        "output": last,
    }
    assert plan.held_bytes == 21400 + 144
    assert plan.total_bytes == plan.held_bytes + plan.arena_bytes
    assert plan.peak_step == 1
    assert [(row.nbytes, row.lower, row.upper) for row in plan.at_peak()] == [(wide, 0, 2), (narrow, 1, 3)]
    assert plan.by_kind() == {"forward": wide + narrow}
    assert y.shape == (4, 9)


def test_eager_high_water_is_what_python_holds(cpu):
    """Names keep values longer than they are needed."""
    x = tensor.zeros((4, 100), device=cpu)
    with cpu.recording() as graph:
        y = x * 2.0  # 1600
        z = autograd.tanh(y)  # 3200
        z = z + y  # 4800: the name moves on after the operation
        del y
        z = z * 3.0  # 3200
    plan = graph.memory_plan
    assert plan.eager_bytes == 4800
    assert plan.arena_bytes == 3200
    assert plan.by_role["output"] == z.nbytes == 1600


def test_a_chain_lies_in_one_place(cpu):
    x = tensor.zeros((4, 100), device=cpu)
    with cpu.recording() as graph:
        y = autograd.tanh(autograd.tanh(autograd.tanh(x * 2.0))) * 3.0
    plan = graph.memory_plan
    assert (plan.arena_bytes, plan.floor_bytes, plan.recorded_floor_bytes) == (1600, 1600, 3200)
    assert plan.unshared_bytes == 4 * 1600
    assert [(row.nbytes, row.lower, row.upper, row.offset) for row in plan.rows] == [(1600, 0, 5, 0)]
    assert y.nbytes == 1600


def test_the_parts_of_a_training_step_by_hand():
    net = tiny()
    net.train_one_batch(*batch(net, 8))
    plan = net.memory_plan
    weights = 4 * (20 * 30 + 30 * 7)
    assert plan.by_role["parameter"] == weights
    assert plan.by_role["state"] == 2 * 8, "a count for each parameter"
    assert plan.by_role["input"] == 4 * (8 * 20 + 8 * 7) + 8, "batch, targets and the learning rate"
    assert plan.by_role["output"] == 4
    kinds = plan.by_kind()
    assert kinds["gradient"] == weights
    assert set(kinds) >= {"forward", "derivative", "gradient"}
    # The peak is the update of the larger weight, long after the other gradient died.
    assert {(row.layer, row.kind) for row in plan.at_peak()} == {("first", "gradient"), ("first", "scratch")}


def test_frozen_layers_have_no_gradients_and_nothing_is_kept_for_them():
    plans = {}
    for freeze in (None, "second"):
        net = tiny()
        net.compile(optimizer.SGD(lr=0.01), freeze=freeze)
        net.train_one_batch(*batch(net, 8))
        plans[freeze] = net.memory_plan
    frozen = plans["second"]
    assert [row.layer for row in frozen.rows if row.kind == "gradient"] == ["second"]
    assert not any(row.kind == "derivative" and row.layer in ("first", "tanh") for row in frozen.rows)
    assert frozen.by_role["state"] == 8
    assert frozen.arena_bytes < plans[None].arena_bytes


# --- the plan and the process -------------------------------------------------------------------------------


@every_net
def test_arena_and_held_bytes_are_what_the_pool_holds(make):
    net = make()
    net.train_one_batch(*batch(net, 9))
    gc.collect()
    plan = net.memory_plan
    others = sum(lines(t.nbytes) for t in net.states().values()) if make is convolutional else 0
    assert plan.total_bytes <= net.device.pool.used
    held = 4 * len(net.param_names()) + 12  # at most so many tensors, each with less than a line of rounding
    assert net.device.pool.used - plan.total_bytes < 64 * held
    assert others <= plan.by_role["state"] + 64 * len(net.states())


@every_net
def test_a_recorded_step_needs_less_than_eager_work_and_far_less_than_no_sharing(make):
    net = make()
    net.train_one_batch(*batch(net, 16))
    plan = net.memory_plan
    assert plan.floor_bytes <= plan.arena_bytes
    assert plan.arena_bytes == plan.floor_bytes, "the normal result"
    assert plan.floor_bytes <= plan.recorded_floor_bytes
    assert plan.arena_bytes <= plan.eager_bytes + 64 * 8
    assert plan.arena_bytes < 0.7 * plan.unshared_bytes


def test_the_eager_high_water_is_the_pool_s():
    net = convolutional()
    x, y = batch(net, 9)
    net.train_one_batch(x, y)
    predicted = net.memory_plan.eager_bytes
    eager = convolutional()
    eager.compile(optimizer.Adam(), graph=False)
    eager.train_one_batch(x, y)
    x, y = (tensor.from_numpy(a, eager.device) for a in (x, y))
    level = eager.device.pool.used
    eager.device.pool.reset_high_water()
    eager.train_one_batch(x, y)
    measured = eager.device.pool.high_water - level
    assert predicted <= measured < 1.05 * predicted + 64 * 20


@every_net
def test_rows_lie_in_the_arena_and_never_over_each_other(make):
    net = make()
    net.train_one_batch(*batch(net, 6))
    plan = net.memory_plan
    for row in plan.rows:
        assert row.offset >= 0
        assert row.offset + row.nbytes <= plan.arena_bytes
        assert 0 <= row.lower < row.upper <= plan.operations
    for i, one in enumerate(plan.rows):
        for other in plan.rows[:i]:
            together = one.lower < other.upper and other.lower < one.upper
            apart = one.offset + one.nbytes <= other.offset or other.offset + other.nbytes <= one.offset
            assert apart or not together, (one, other)


@every_net
def test_the_rows_at_the_peak_add_up_to_the_floor(make):
    net = make()
    net.train_one_batch(*batch(net, 6))
    plan = net.memory_plan
    rows = plan.at_peak()
    assert sum(lines(row.nbytes) for row in rows) == plan.floor_bytes
    assert all(row.lower <= plan.peak_step < row.upper for row in rows)
    assert [row.nbytes for row in rows] == sorted((row.nbytes for row in rows), reverse=True)
    names = {layer.name for layer in net.layers.values()}
    assert {row.layer for row in rows} <= names | {""}
    assert all(row.name for row in rows)


def test_scratch_is_in_the_plan():
    net = convolutional()
    net.train_one_batch(*batch(net, 6))
    scratch = [row for row in net.memory_plan.rows if row.kind == "scratch"]
    assert {row.layer for row in scratch} >= {"stem", "left"}
    assert all(row.upper == row.lower + 1 for row in scratch)


@every_net
def test_the_check_passes_and_finds_a_spoilt_plan(make):
    net = make()
    net.train_one_batch(*batch(net, 6))
    plan = net.memory_plan
    plan.check()
    wanted = requests(plan.placed.planned)
    block, other = next((a, b) for a, b in combinations(wanted, 2) if a.start < b.stop and b.start < a.stop)
    plan.placed.plan.offsets[block.id] = plan.placed.plan.offsets[other.id]
    with pytest.raises(PlanError):
        plan.check()


def mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.2f} MiB"


def test_the_summary_holds_the_numbers():
    net = convolutional()
    net.train_one_batch(*batch(net, 200))
    plan = net.memory_plan
    text = re.sub(" +", " ", plan.summary())
    for wanted in (
        f"{plan.operations} operations in {plan.order!r} order",
        f"arena {mib(plan.arena_bytes)}",
        f"floor {mib(plan.floor_bytes)} (gap 0 bytes)",
        f"as recorded {mib(plan.recorded_floor_bytes)}",
        f"unshared {mib(plan.unshared_bytes)}",
        f"eager high water {mib(plan.eager_bytes)}",
        f"parameter {mib(plan.by_role['parameter'])}",
        f"together {mib(plan.total_bytes)}",
        f"step {plan.peak_step} ",
    ):
        assert wanted in text
    for row in plan.at_peak()[:20]:
        assert " ".join(f"{mib(row.nbytes)} {row.kind} {row.layer} {row.name}".split()) in text
    assert "proved least" in text
    assert repr(plan).startswith("<MemoryPlan arena")


# --- predictions --------------------------------------------------------------------------------------------


def numbers(plan: MemoryPlan) -> tuple[object, ...]:
    rows = [tuple(vars(row).values()) for row in plan.rows]
    return (plan.arena_bytes, plan.floor_bytes, plan.unshared_bytes, plan.recorded_floor_bytes, plan.order,
            plan.operations, plan.by_role, rows)  # fmt: skip


@every_net
@pytest.mark.parametrize("count", [1, 6, 32])
def test_a_predicted_plan_is_that_of_a_trained_batch(make, count):
    net = make()
    predicted = net.plan_batch(count)
    net.train_one_batch(*batch(net, count))
    assert numbers(predicted) == numbers(net.memory_plan)
    assert numbers(net.plan_batch(count)) == numbers(net.memory_plan)


@every_net
def test_predicting_changes_nothing_and_needs_nothing_but_the_optimizer_s_state(make):
    net, twin = make(), make()
    data = batch(net, 6)
    for one in (net, twin):
        one.train_one_batch(*data)
    gc.collect()
    before, used = state_of(net), net.device.pool.used
    net.device.pool.reset_high_water()
    net.plan_batch(64)
    net.plan_batch(64, training=False)
    net.largest_batch(1_000_000)
    assert net.device.pool.high_water - used < 64 * 8, "room for targets and the like"
    gc.collect()
    assert net.device.pool.used == used
    assert state_of(net) == before
    for one in (net, twin):
        one.train_one_batch(*data)
    assert state_of(net) == state_of(twin)


@every_net
def test_a_predicted_prediction_is_that_of_predict(make):
    net = make()
    plan = net.plan_batch(9, training=False)
    trained = net.plan_batch(9)
    assert plan.by_role["state"] == 0
    assert plan.operations < trained.operations
    assert plan.arena_bytes < trained.arena_bytes
    level = net.device.pool.used
    net.predict_one_batch(batch(net, 9)[0])
    gc.collect()
    transient = plan.arena_bytes + plan.by_role["output"] + 4 * 9 * int(np.prod(batch(net, 1)[0].shape))
    assert 0 <= net.device.pool.used - level - transient < 64 * 4


@every_net
def test_the_largest_batch_fits_and_one_more_does_not(make):
    net = make()
    for budget in (20_000, 60_000, 300_000):
        count = net.largest_batch(budget)
        if count:
            assert net.plan_batch(count).total_bytes <= budget
        assert net.plan_batch(count + 1).total_bytes > budget
    exact = net.plan_batch(7).total_bytes
    assert net.largest_batch(exact) == 7
    assert net.largest_batch(exact - 1) == 6


def test_no_batch_fits_into_less_than_the_parameters():
    assert tiny().largest_batch(1000) == 0
    assert tiny().largest_batch(0) == 0


# --- errors -------------------------------------------------------------------------------------------------


def test_there_is_no_plan_before_a_recorded_step():
    net = tiny()
    with pytest.raises(GraphError, match="train a batch first"):
        _ = net.memory_plan
    net.compile(optimizer.SGD(), graph=False)
    net.train_one_batch(*batch(net, 4))
    with pytest.raises(GraphError, match="graph=True"):
        _ = net.memory_plan


@pytest.mark.parametrize("count", [0, -3, 2.5, "many"])
def test_a_batch_that_is_none(count):
    with pytest.raises(ValueError, match="plan_batch"):
        tiny().plan_batch(count)


def test_planning_a_net_that_is_not_compiled():
    net = FeedForwardNet(device=device.new_cpu())
    net.add(layers.Dense("dense", 3, input_sample_shape=(4,)))
    with pytest.raises(GraphError, match="compiled"):
        net.plan_batch(5)
    assert net.plan_batch(5, training=False).operations == 1


def test_predicting_keeps_the_mark_of_an_unfinished_step():
    net = tiny()
    x, y = batch(net, 4)
    net.loss.forward(True, net.forward(True, x), y)
    walk = net.backward(net.loss.backward())
    next(walk)
    walk.close()
    net.plan_batch(4, training=False)
    with pytest.raises(GraphError, match="plan_batch: wanted a whole step"):
        net.plan_batch(4)
    with pytest.raises(GraphError, match="whole step"):
        net.train_one_batch(x, y)
