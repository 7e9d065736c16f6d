"""The generator's promise in pool bytes: one layer's gradients at a time, and no activation longer than it is needed.

Steps are done operation by operation, but where recorded ones are named. Bytes are counted as the pool does, in
whole lines of 64.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from nets import explicit_step, forward_and_loss, state_of
from singa_lite import FeedForwardNet, Tensor, autograd, device, layers, loss, metric, optimizer, tensor
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.errors import GraphError

BATCH, WIDTH = 16, 300
RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((BATCH, WIDTH)).astype("f"), RNG.integers(0, WIDTH, BATCH)

OPTIMIZERS: dict[str, Callable[[], optimizer.Optimizer]] = {
    "sgd": lambda: optimizer.SGD(lr=0.01),
    "momentum": lambda: optimizer.SGD(lr=0.01, momentum=0.9),
    "adam": lambda: optimizer.Adam(),
}


def lines(nbytes: int) -> int:
    """Bytes as the pool gives them out."""
    return -(-nbytes // 64) * 64


def numbers(*extents: int) -> int:
    """Bytes of a float32 tensor in the pool."""
    return lines(4 * int(np.prod(extents)))


ACTIVATION = numbers(BATCH, WIDTH)
GRADIENTS = numbers(WIDTH, WIDTH) + numbers(WIDTH)  # of one layer


def equal_layers(count: int, opt: str = "sgd") -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device.new_cpu())
    for i in range(count):
        net.add(layers.Dense(f"dense{i}", WIDTH, input_sample_shape=None if i else (WIDTH,)))
    net.compile(OPTIMIZERS[opt](), graph=False)
    net.train_one_batch(X, Y)  # makes the optimizer's state
    return net


class Peak:
    """What the pool held at most inside a block, above what it held at its beginning, and each phase's scratch."""

    nbytes = 0

    def __init__(self) -> None:
        self.scratch: dict[str, int] = {}


@contextmanager
def peak(on: device.Device) -> Iterator[Peak]:
    found = Peak()

    def note(operation: Any) -> None:
        before = found.scratch.get(operation.phase, 0)
        found.scratch[str(operation.phase)] = max(before, lines(operation.scratch_bytes))

    level = on.pool.used
    on.pool.reset_high_water()
    with on.watch(note):
        yield found
    found.nbytes = on.pool.high_water - level


# --- training -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opt", OPTIMIZERS)
def test_a_step_with_updates_in_the_loop_costs_one_layers_gradients(opt):
    """Above parameters, optimizer state, targets and each layer's input; whatever the number of layers.

    While a layer's gradients are computed, its input and the derivatives by its output and by its input are there.
    While they are applied, of these only the derivative by its input is: the layer's place among the activations.
    """
    steps: list[Callable[[FeedForwardNet], object]] = [
        lambda net: net.train_one_batch(X, Y),
        lambda net: explicit_step(net, X, Y),
    ]
    for step in steps:
        above = []
        for count in (2, 5):
            net = equal_layers(count, opt)
            with peak(net.device) as found:
                step(net)
            above.append(found.nbytes - count * ACTIVATION)
        computing, applying = 2 * ACTIVATION + found.scratch["gradient"], found.scratch["update"]
        results = 2 * 64  # loss and metric
        assert GRADIENTS < above[0] <= GRADIENTS + max(computing, applying) + lines(Y.nbytes) + results
        assert above[0] == above[1] < 2 * GRADIENTS


def test_the_loop_itself_costs_one_layers_gradients_and_its_activations_go_as_it_walks():
    net = equal_layers(8)
    level = net.device.pool.used
    dy = forward_and_loss(net, X, Y)
    assert net.device.pool.used == level + 8 * ACTIVATION + ACTIVATION  # each layer's input, and dy
    walk = net.backward(dy)
    del dy
    used = []
    for item in walk:
        assert len(item.gradients) == 2
        used.append(net.device.pool.used - level)
        del item
    # A turn costs a layer's gradients; one derivative by an input is left but after the first layer's turn, and an
    # input fewer is kept each time.
    wanted = [GRADIENTS + ACTIVATION * (8 - turn) for turn in range(8)]
    wanted[-1] -= ACTIVATION
    assert used == wanted
    assert net.device.pool.used == level


@pytest.mark.parametrize("count", [2, 8])
def test_collected_gradients_cost_all_layers(count):
    net = equal_layers(count)
    level = net.device.pool.used
    with peak(net.device) as found:
        collected = net.gradients(X, Y)
    assert net.device.pool.used - level == count * GRADIENTS
    beside = 3 * ACTIVATION + lines(Y.nbytes)  # the batch, the output and a derivative by an input
    assert count * GRADIENTS <= found.nbytes <= count * GRADIENTS + beside + found.scratch["gradient"]
    del collected
    assert net.device.pool.used == level


def test_adam_keeps_two_numbers_for_each_parameter_and_results_hold_no_activations():
    plain, momentum, adam = (equal_layers(3, name).device.pool.used for name in OPTIMIZERS)
    assert (momentum - plain, adam - plain) == (3 * GRADIENTS, 2 * 3 * GRADIENTS)
    net = equal_layers(4)
    level = net.device.pool.used
    results: list[Tensor] = []
    for _ in range(5):
        results += net.train_one_batch(X, Y)
    assert net.device.pool.used == level + len(results) * 64


# --- what is kept for backward ------------------------------------------------------------------------------


def dense(name: str, **options: Any) -> layers.Dense:
    return layers.Dense(name, WIDTH, **options)


FIRST = {"input_sample_shape": (WIDTH,)}
IMAGE = (3, 6, 8)
CONV = {"input_sample_shape": IMAGE}
#: (layers, bytes): the input is the caller's, the output the net's; what is between them.
KEPT: dict[str, tuple[Callable[[], list[Any]], int]] = {
    "a product keeps its input": (lambda: [dense("a", **FIRST), dense("b")], ACTIVATION),
    "relu keeps its output, which is the next one's input": (
        lambda: [dense("a", **FIRST), layers.Activation("act"), dense("b")],
        ACTIVATION,
    ),
    "so do tanh, sigmoid, softplus and softmax": (
        lambda: [
            dense("a", **FIRST),
            layers.Activation("act", "tanh"),
            layers.Activation("act 2", "sigmoid"),
            layers.Activation("act 3", "softplus"),
            layers.Softmax("act 4"),
        ],
        3 * ACTIVATION,
    ),
    "gelu and silu keep their input": (
        lambda: [dense("a", **FIRST), layers.Activation("act", "gelu"), layers.Activation("act 2", "silu")],
        2 * ACTIVATION,
    ),
    "a sum keeps nothing": (lambda: [dense("a", **FIRST), layers.Split("split", 2), layers.Merge("sum")], 0),
    "dropout keeps a key and no mask": (lambda: [dense("a", **FIRST), layers.Dropout("drop")], 64),
    "views keep nothing": (
        lambda: [
            dense("a", **FIRST),
            layers.Reshape("images", (3, 10, 10)),
            layers.Flatten("flat"),
            layers.Dummy("same"),
            dense("b"),
        ],
        ACTIVATION,
    ),
    "normalisation keeps its input and two numbers a channel": (
        lambda: [dense("a", **FIRST), layers.BatchNormalization("norm")],
        ACTIVATION + 2 * numbers(WIDTH),
    ),
    "an average of an image keeps nothing": (
        lambda: [layers.Conv2D("conv", 3, **CONV), layers.AvgPooling2D("pool", 2, 2, "valid")],
        0,
    ),
    "a maximum of an image keeps where it was": (
        lambda: [layers.Conv2D("conv", 3, **CONV), layers.MaxPooling2D("pool", 2, 2, "valid")],
        lines(BATCH * 3 * 3 * 4),  # a byte for each
    ),
}


@pytest.mark.parametrize(("make", "wanted"), KEPT.values(), ids=KEPT.keys())
def test_training_keeps_only_what_backward_needs(make, wanted):
    net = FeedForwardNet(device=device.new_cpu())
    for layer in make():
        net.add(layer, ["split", "split"] if isinstance(layer, layers.Merge) else None)
    (shape,) = net.input_shapes().values()
    x = tensor.zeros((BATCH, *shape), device=net.device)
    level = net.device.pool.used
    out = net.forward(True, x)
    assert net.device.pool.used - level - lines(out.nbytes) == wanted


def deep(count: int, on: device.Device) -> FeedForwardNet:
    net = FeedForwardNet(device=on)
    net.add(dense("first", **FIRST))
    for i in range(count):
        net.add(layers.Activation(f"act{i}"))
        net.add(dense(f"dense{i}"))
    return net


def branched(on: device.Device) -> FeedForwardNet:
    """Twelve branches from one input, each summed with the next as soon as both are there: three live at once."""
    net = FeedForwardNet(device=on)
    net.add(layers.Dummy("x", (WIDTH,)))
    before = "x"
    for i in range(12):
        net.add(dense(f"branch{i}"), src="x")
        net.add(layers.Merge(f"sum{i}"), src=[before, f"branch{i}"])
        before = f"sum{i}"
    return net


@pytest.mark.parametrize(("make", "activations"), [*((lambda on, n=n: deep(n, on), 2) for n in (1, 12)), (branched, 3)])
def test_evaluation_holds_what_is_still_read_whatever_the_depth(make, activations):
    on = device.new_cpu()
    net, x = make(on), tensor.from_numpy(X, on)
    with peak(on) as found:
        net.forward(False, x)
    assert found.nbytes == activations * ACTIVATION


def test_named_outputs_are_held_and_no_others_and_an_expression_frees_what_no_one_holds():
    on = device.new_cpu()
    net, x = deep(6, on), tensor.from_numpy(X, on)
    level = on.pool.used
    out = net.forward(False, x, output=["act1", "dense3"])
    assert on.pool.used == level + 3 * ACTIVATION
    del out["act1"]
    assert on.pool.used == level + 2 * ACTIVATION
    with peak(on) as found:
        y = x
        for _ in range(20):
            y = autograd.relu(y * 2.0)
    assert found.nbytes == 2 * ACTIVATION + ACTIVATION


# --- leaks --------------------------------------------------------------------------------------------------


def uses(net: FeedForwardNet) -> dict[str, Callable[[], object]]:
    x, y = RNG.standard_normal((BATCH, 3, 10, 12)).astype("f"), RNG.integers(0, 5, BATCH)

    def refused() -> None:
        for batch, labels in ((x[:, :2], y), (x, y + 5)):
            with pytest.raises(ValueError, match="wanted"):
                net.train_one_batch(batch, labels)

    def dropped() -> None:
        walk = net.backward(forward_and_loss(net, x, y))
        next(walk)
        walk.close()
        net.discard_step()

    def derivatives() -> None:
        for item in net.backward(forward_and_loss(net, x, y), output=["stem", "dense"]):
            del item

    return {
        "steps": lambda: net.train_one_batch(x, y),
        "steps in other sizes": lambda: [net.train_one_batch(x[:n], y[:n]) for n in (3, 16, 7)],
        "explicit steps": lambda: explicit_step(net, x, y),
        "gradients": lambda: net.gradients(x, y),
        "evaluation": lambda: net.evaluate(x, y, batch_size=5),
        "prediction": lambda: net.predict(x, batch_size=5),
        "forward without backward": lambda: (net.forward(True, x), net.discard_step()),
        "refused batches": refused,
        "dropped walks": dropped,
        "derivatives by inputs": derivatives,
    }


@pytest.mark.parametrize("graph", [False, True], ids=["at once", "recorded"])
def test_nothing_leaks_and_a_net_gives_back_all_it_had(graph):
    """Without the garbage collector: what the pool holds after 3 and after 12 times is the same."""
    net = branched_images(graph)
    on = net.device
    for name, do in uses(net).items():
        used = {}
        gc.collect()
        gc.disable()
        try:
            for times in range(1, 13):
                do()
                used[times] = on.pool.used
        finally:
            gc.enable()
        assert used[12] == used[3], name
    del net, do
    gc.collect()
    assert on.pool.used == 0


# --- the memory plan says what a step takes


def tiny() -> FeedForwardNet:
    """Two products, 20 -> 30 -> 7, with a tanh between; squared error; NumPy's kernels, whose scratch is known."""
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels="numpy"), seed=2)
    net.add(layers.Dense("first", 30, use_bias=False, input_sample_shape=(20,)))
    net.add(layers.Activation("tanh", "tanh"))
    net.add(layers.Dense("second", 7, use_bias=False))
    net.compile(optimizer.SGD(lr=0.01))
    return net


def branched_images(graph: bool = True) -> FeedForwardNet:
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


NETS: dict[str, Callable[[], FeedForwardNet]] = {"tiny": tiny, "branched_images": branched_images}
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
        **dict.fromkeys(("frozen", "frozen, mapped", "parameter", "state"), 0),
        "intermediate": wide + narrow,
        "output": last,
    }
    assert plan.held_bytes == 21400 + 144
    assert plan.total_bytes == plan.held_bytes + plan.arena_bytes
    assert plan.peak_step == 1
    assert [(row.nbytes, row.lower, row.upper) for row in plan.at_peak()] == [(wide, 0, 2), (narrow, 1, 3)]
    assert [(row.kind, row.nbytes) for row in plan.rows] == [("forward", wide), ("forward", narrow)]
    assert y.shape == (4, 9)


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
    assert sum(row.nbytes for row in plan.rows if row.kind == "gradient") == weights
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
    net, eager = branched_images(), branched_images(graph=False)
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


def test_the_summary_holds_the_numbers():
    net = branched_images()
    plan = net.plan_batch(200)
    text = plan.summary()
    plan_numbers = (
        plan.arena_bytes,
        plan.recorded_floor_bytes,
        plan.unshared_bytes,
        plan.eager_bytes,
        plan.total_bytes,
    )
    for nbytes in (*plan_numbers, plan.by_role["parameter"], *(row.nbytes for row in plan.at_peak()[:20])):
        assert f"{nbytes / 2**20:.2f} MiB" in text
    assert all(row.layer in text and row.name in text for row in plan.at_peak()[:20])


# --- predictions --------------------------------------------------------------------------------------------


def plan_numbers(plan: MemoryPlan) -> tuple[object, ...]:
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
        assert plan_numbers(predicted) == plan_numbers(net.memory_plan) == plan_numbers(net.plan_batch(count))
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
