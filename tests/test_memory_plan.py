"""The memory plan says what a step takes: numbers worked out by hand, and measured in the pool."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from nets import forward_and_loss, state_of
from singa_lite import FeedForwardNet, autograd, device, layers, loss, metric, optimizer, tensor
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


def convolutional(graph: bool = True) -> FeedForwardNet:
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
    net.compile(optimizer.Adam(), graph=graph)
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


def test_three_products_by_hand():
    cpu = device.new_cpu()
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


def test_eager_high_water_is_what_python_holds():
    """Names keep values longer than they are needed."""
    cpu = device.new_cpu()
    x = tensor.zeros((4, 100), device=cpu)
    with cpu.recording() as graph:
        y = x * 2.0  # 1600
        z = autograd.tanh(y)  # 3200
        z = z + y  # 4800: the name moves on after the operation
        del y
        z = z * 3.0  # 3200
    plan = graph.memory_plan
    assert (plan.eager_bytes, plan.arena_bytes) == (4800, 3200)
    assert plan.by_role["output"] == z.nbytes == 1600


def test_a_chain_lies_in_one_place():
    cpu = device.new_cpu()
    x = tensor.zeros((4, 100), device=cpu)
    with cpu.recording() as graph:
        y = autograd.tanh(autograd.tanh(autograd.tanh(x * 2.0))) * 3.0
    plan = graph.memory_plan
    assert (plan.arena_bytes, plan.floor_bytes, plan.recorded_floor_bytes) == (1600, 1600, 3200)
    assert plan.unshared_bytes == 4 * 1600
    assert [(row.nbytes, row.lower, row.upper, row.offset) for row in plan.rows] == [(1600, 0, 5, 0)]
    assert y.nbytes == 1600


def test_the_parts_of_a_training_step_by_hand():
    """Frozen layers have no gradients, and nothing is kept for them."""
    plans = {}
    for freeze in (None, "second"):
        net = tiny()
        net.compile(optimizer.SGD(lr=0.01), freeze=freeze)
        net.train_one_batch(*batch(net, 8))
        plans[freeze] = net.memory_plan
    plan, frozen = plans.values()
    weights = 4 * (20 * 30 + 30 * 7)
    assert plan.by_role["parameter"] == weights
    assert plan.by_role["state"] == 2 * 8, "a count for each parameter"
    assert plan.by_role["input"] == 4 * (8 * 20 + 8 * 7) + 8, "batch, targets and the learning rate"
    assert plan.by_role["output"] == 4
    assert plan.by_kind()["gradient"] == weights
    # The peak is the update of the larger weight, long after the other gradient died.
    assert {(row.layer, row.kind) for row in plan.at_peak()} == {("first", "gradient"), ("first", "scratch")}
    assert [row.layer for row in frozen.rows if row.kind == "gradient"] == ["second"]
    assert not any(row.kind == "derivative" and row.layer in ("first", "tanh") for row in frozen.rows)
    assert frozen.by_role["state"] == 8
    assert frozen.arena_bytes < plan.arena_bytes


# --- the plan and the process -------------------------------------------------------------------------------


@every_net
def test_arena_and_held_bytes_are_what_the_pool_holds(make):
    net = make()
    net.train_one_batch(*batch(net, 9))
    gc.collect()
    plan = net.memory_plan
    held = 4 * len(net.param_names()) + 12  # at most so many tensors, each with less than a line of rounding
    assert 0 <= net.device.pool.used - plan.total_bytes < 64 * held


@every_net
def test_a_recorded_step_needs_less_than_eager_work_and_far_less_than_no_sharing(make):
    net = make()
    net.train_one_batch(*batch(net, 16))
    plan = net.memory_plan
    assert plan.arena_bytes == plan.floor_bytes <= plan.recorded_floor_bytes, "the normal result"
    assert plan.arena_bytes <= plan.eager_bytes + 64 * 8
    assert plan.arena_bytes < 0.7 * plan.unshared_bytes


def test_the_eager_high_water_is_the_pool_s():
    net, eager = convolutional(), convolutional(graph=False)
    x, y = batch(net, 9)
    for one in (net, eager):
        one.train_one_batch(x, y)
    predicted = net.memory_plan.eager_bytes
    x, y = (tensor.from_numpy(a, eager.device) for a in (x, y))
    level = eager.device.pool.used
    eager.device.pool.reset_high_water()
    eager.train_one_batch(x, y)
    measured = eager.device.pool.high_water - level
    assert predicted <= measured < 1.05 * predicted + 64 * 20


@every_net
def test_rows_lie_apart_in_the_arena_and_those_at_the_peak_add_up_to_the_floor(make):
    net = make()
    net.train_one_batch(*batch(net, 6))
    plan = net.memory_plan
    for row in plan.rows:
        assert row.offset >= 0 and row.offset + row.nbytes <= plan.arena_bytes
        assert 0 <= row.lower < row.upper <= plan.operations
    for one, other in combinations(plan.rows, 2):
        together = one.lower < other.upper and other.lower < one.upper
        apart = one.offset + one.nbytes <= other.offset or other.offset + other.nbytes <= one.offset
        assert apart or not together, (one, other)
    rows = plan.at_peak()
    assert sum(lines(row.nbytes) for row in rows) == plan.floor_bytes
    assert all(row.name and row.lower <= plan.peak_step < row.upper for row in rows)
    assert [row.nbytes for row in rows] == sorted((row.nbytes for row in rows), reverse=True)
    assert {row.layer for row in rows} <= {layer.name for layer in net.layers.values()} | {""}
    scratch = [row for row in plan.rows if row.kind == "scratch"]
    assert all(row.upper == row.lower + 1 for row in scratch)
    assert make is tiny or {row.layer for row in scratch} >= {"stem", "left"}


def test_the_check_passes_and_finds_a_spoilt_plan():
    net = convolutional()
    net.train_one_batch(*batch(net, 6))
    plan = net.memory_plan
    plan.check()
    wanted = requests(plan.placed.planned)
    block, other = next((a, b) for a, b in combinations(wanted, 2) if a.start < b.stop and b.start < a.stop)
    plan.placed.plan.offsets[block.id] = plan.placed.plan.offsets[other.id]
    with pytest.raises(PlanError):
        plan.check()


def test_the_summary_holds_the_numbers():
    net = convolutional()
    plan = net.plan_batch(200)
    text = plan.summary()
    numbers = (plan.arena_bytes, plan.recorded_floor_bytes, plan.unshared_bytes, plan.eager_bytes, plan.total_bytes)
    for nbytes in (*numbers, plan.by_role["parameter"], *(row.nbytes for row in plan.at_peak()[:20])):
        assert f"{nbytes / 2**20:.2f} MiB" in text
    assert all(row.layer in text and row.name in text for row in plan.at_peak()[:20])


# --- predictions --------------------------------------------------------------------------------------------


def numbers(plan: MemoryPlan) -> tuple[object, ...]:
    rows = [tuple(vars(row).values()) for row in plan.rows]
    return (plan.arena_bytes, plan.floor_bytes, plan.unshared_bytes, plan.recorded_floor_bytes, plan.order,
            plan.operations, plan.by_role, rows)  # fmt: skip


@every_net
def test_a_predicted_plan_is_that_of_a_trained_batch_and_changes_nothing(make):
    net, twin = make(), make()
    for count in (1, 6, 32):
        predicted, data = net.plan_batch(count), batch(net, count)
        net.train_one_batch(*data)
        twin.train_one_batch(*data)
        assert numbers(predicted) == numbers(net.memory_plan) == numbers(net.plan_batch(count))
    gc.collect()
    used = net.device.pool.used
    net.device.pool.reset_high_water()
    net.plan_batch(64)
    net.plan_batch(64, training=False)
    net.largest_batch(100_000)
    assert net.device.pool.high_water - used < 64 * 8, "room for targets and the like"
    gc.collect()
    assert net.device.pool.used == used
    assert state_of(net) == state_of(twin)
    for one in (net, twin):
        one.train_one_batch(*data)
    assert state_of(net) == state_of(twin)


@every_net
def test_a_predicted_prediction_is_that_of_predict(make):
    net = make()
    plan, trained = net.plan_batch(9, training=False), net.plan_batch(9)
    assert plan.by_role["state"] == 0
    assert plan.operations < trained.operations and plan.arena_bytes < trained.arena_bytes
    level = net.device.pool.used
    x, _ = batch(net, 9)
    net.predict_one_batch(x)
    gc.collect()
    assert 0 <= net.device.pool.used - level - (plan.arena_bytes + plan.by_role["output"] + x.nbytes) < 64 * 4


@every_net
def test_the_largest_batch_fits_and_one_more_does_not(make):
    net = make()
    for budget in (0, 1000, 20_000, 60_000):
        count = net.largest_batch(budget)
        assert not count or net.plan_batch(count).total_bytes <= budget
        assert net.plan_batch(count + 1).total_bytes > budget
    exact = net.plan_batch(7).total_bytes
    assert [net.largest_batch(exact), net.largest_batch(exact - 1)] == [7, 6]


# --- errors -------------------------------------------------------------------------------------------------


def test_there_is_no_plan_before_a_recorded_step_or_a_compilation():
    net = tiny()
    with pytest.raises(GraphError, match="train a batch"):
        _ = net.memory_plan
    net.compile(optimizer.SGD(), graph=False)
    net.train_one_batch(*batch(net, 4))
    with pytest.raises(GraphError, match="graph=True"):
        _ = net.memory_plan
    for count in (0, -3, 2.5, "many", True, None):
        with pytest.raises(ValueError, match="plan_batch"):
            tiny().plan_batch(count)
        with pytest.raises(ValueError, match="plan_batch"):
            tiny().plan_batch(count, training=False)
    net = FeedForwardNet(device=device.new_cpu())
    net.add(layers.Dense("dense", 3, input_sample_shape=(4,)))
    for ask in (net.plan_batch, net.largest_batch):
        with pytest.raises(GraphError, match="compiled"):
            ask(5)
    assert net.plan_batch(5, training=False).operations == 1


def test_predicting_keeps_the_mark_of_an_unfinished_step():
    net = tiny()
    x, y = batch(net, 4)
    walk = net.backward(forward_and_loss(net, x, y))
    next(walk)
    walk.close()
    net.plan_batch(4, training=False)
    for ask in (lambda: net.plan_batch(4), lambda: net.train_one_batch(x, y)):
        with pytest.raises(GraphError, match="whole step"):
            ask()
