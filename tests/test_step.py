"""Recorded steps of nets: equal to eager work bit for bit, whatever changes and whatever goes wrong."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from kernel_sets import kernel_sets
from nets import bits, explicit_step, state_of
from singa_lite import (
    FeedForwardNet,
    Layer,
    Tensor,
    autograd,
    device,
    layers,
    loss,
    metric,
    optimizer,
    schedule,
    tensor,
)
from singa_lite.device import Device
from singa_lite.errors import GraphError, SnapshotError
from singa_lite.graph import Graph
from singa_lite.kernels.kernel_set import FunctionKernel
from singa_lite.memory.pool import OutOfMemoryError
from singa_lite.passes.program import requests

CLASSES = 5


class Scripted(Layer):
    """Passes its input on; raises where it is told to."""

    fail: str = ""

    def setup(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        if self.fail == "forward":
            raise ZeroDivisionError("in forward")
        return _Scripted(self)(x)


class _Scripted(autograd.Op):
    def __init__(self, layer: Scripted) -> None:
        self.told = layer

    def forward(self, x: Tensor) -> Tensor:
        return x.detach()

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if self.told.fail == "backward":
            raise ZeroDivisionError("in backward")
        return dys[0]


def rate(step: int) -> float:
    return 0.1 / (1 + step)


def small(
    graph: bool = True,
    make: Callable[[], optimizer.Optimizer] = lambda: optimizer.SGD(lr=schedule.get(rate), momentum=0.9),
    on: Device | None = None,
) -> FeedForwardNet:
    """All that changes from step to step: dropout, running statistics, a schedule, momentum; and a concatenation."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), on or device.new_cpu(), seed=4)
    start = net.add(layers.Conv2D("stem", 4, 3, input_sample_shape=(3, 6, 7)))
    left = net.add(layers.Activation("relu"), net.add(layers.BatchNormalization("norm"), start))
    net.add(layers.Concat("joined", 1), [left, net.add(layers.Conv2D("right", 2, 1), start)])
    net.add(Scripted("scripted"))
    net.add(layers.Dropout("drop", 0.4))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", CLASSES))
    net.compile(make(), graph=graph)
    return net


def batch(number: int, count: int = 9) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([number, count])
    return rng.standard_normal((count, 3, 6, 7)).astype("f"), rng.integers(0, CLASSES, count)


def pair(**options: Any) -> tuple[FeedForwardNet, FeedForwardNet]:
    """A net that records and an equal one that does not."""
    return small(True, **options), small(False, **options)


def assert_equal_steps(net: FeedForwardNet, twin: FeedForwardNet, *data: tuple[np.ndarray, np.ndarray]) -> None:
    for x, y in data:
        found, wanted = net.train_one_batch(x, y), twin.train_one_batch(x, y)
        assert [bits(value) for value in found] == [bits(value) for value in wanted]
        assert state_of(net) == state_of(twin)


# --- what changes between batches ---------------------------------------------------------------------------


def test_losses_metrics_and_states_do_change():
    """So that equality above is evidence."""
    net = small()
    seen = []
    for _ in range(4):
        value, hits = net.train_one_batch(*batch(0))
        seen.append((float(value), bits(net.states()["norm/running_mean"]), bits(net.layers["drop"].states["random"])
                     if "random" in net.layers["drop"].states else float(value)))  # fmt: skip
        assert 0 <= float(hits) <= 1
    assert len(set(seen)) == 4
    assert len({entry[0] for entry in seen}) == 4, "another mask at each step"


def test_the_schedule_is_asked_once_a_step():
    asked: list[int] = []

    def noted(step: int) -> float:
        asked.append(step)
        return 0.1

    net = small(make=lambda: optimizer.SGD(lr=schedule.get(noted)))
    for number in range(4):
        net.train_one_batch(*batch(number))
    assert asked == [0, 1, 2, 3]


def test_the_schedule_may_be_exchanged():
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    for one in (net, twin):
        one.optimizer.schedule = schedule.get(0.7)
    assert_equal_steps(net, twin, batch(2), batch(3))


def test_results_of_a_step_stay_valid_after_later_steps():
    net, twin = pair()
    found = [net.train_one_batch(*batch(number)) for number in range(4)]
    wanted = [twin.train_one_batch(*batch(number)) for number in range(4)]
    assert [[bits(v) for v in values] for values in found] == [[bits(v) for v in values] for values in wanted]


def test_a_batch_may_be_overwritten_after_its_step():
    net, twin = pair()
    x, y = batch(0)
    for number in range(3):
        x[...], y[...] = batch(number)
        net.train_one_batch(x, y)
        twin.train_one_batch(*batch(number))
    assert state_of(net) == state_of(twin)


GIVEN: dict[str, Callable[[np.ndarray, Device], Any]] = {
    "NumPy": lambda a, on: a,
    "lists": lambda a, on: a.tolist() if a.dtype.kind == "i" else a,
    "tensors": tensor.from_numpy,
    "tensors of another device": lambda a, on: tensor.from_numpy(a, device.new_cpu()),
    "strided": lambda a, on: np.repeat(a, 2, axis=0)[::2],
}


@pytest.mark.parametrize("give", GIVEN.values(), ids=GIVEN.keys())
def test_batches_come_in_any_form(give):
    net, twin = pair()
    for number in range(3):
        x, y = (give(array, net.device) for array in batch(number))
        net.train_one_batch(x, y)
        twin.train_one_batch(*batch(number))
    assert state_of(net) == state_of(twin)


def test_forms_may_alternate_between_batches():
    net, twin = pair()
    for number in range(4):
        x, y = batch(number)
        rows = np.eye(CLASSES, dtype="f")[y]
        target = (y, rows, y.astype("i4"), rows.astype("f8"))[number]
        assert_equal_steps(net, twin, (x, target))


# --- shapes, evaluation, prediction -------------------------------------------------------------------------


def test_batches_of_other_sizes_and_back():
    net, twin = pair()
    for place, count in enumerate((9, 5, 13, 9, 5, 1, 13, 9)):
        assert_equal_steps(net, twin, batch(place, count))


def test_the_largest_batch_sets_the_arena_and_smaller_ones_live_in_it():
    net = small()
    arena = {}
    for count in (9, 30, 5):
        net.train_one_batch(*batch(0, count))
        gc.collect()
        arena[count] = net.memory_plan.arena_bytes
    assert arena[5] < arena[9] < arena[30]
    level = net.device.pool.used
    for count in (9, 30, 5, 9):
        net.train_one_batch(*batch(1, count))
    assert net.device.pool.used == level
    held = sum(t.nbytes for t in (*net.parameters().values(), *net.states().values()))
    slots = sum(t.nbytes for slots in net.optimizer.state.values() for t in slots.values())
    feeds = sum(array.nbytes for array in batch(0, 30))
    assert 0 <= level - arena[30] - held - slots - feeds < 64 * 60


def test_evaluate_and_predict_share_the_arena_and_do_not_disturb_training():
    net, twin = pair()
    net.train_one_batch(*batch(0, 30))
    twin.train_one_batch(*batch(0, 30))
    level = net.device.pool.used
    for number in range(1, 5):
        x, y = batch(number, 30)
        assert [bits(v) for v in net.evaluate_one_batch(x, y)] == [bits(v) for v in twin.evaluate_one_batch(x, y)]
        assert bits(net.predict_one_batch(x)) == bits(twin.predict_one_batch(x))
        assert net.evaluate(x, y, batch_size=7) == twin.evaluate(x, y, batch_size=7)
        assert bits(net.predict(x, batch_size=11)) == bits(twin.predict(x, batch_size=11))
        assert_equal_steps(net, twin, (x, y))
    gc.collect()
    predictions, steps = (30, 11, 8), 6  # each keeps its results
    assert net.device.pool.used - level <= sum(4 * CLASSES * count + 64 for count in predictions) + steps * 2 * 64


def test_a_prediction_does_not_change_while_the_net_trains():
    net = small()
    x, y = batch(0)
    out = net.predict(x, batch_size=4)
    before = bits(out)
    for _ in range(3):
        net.train_one_batch(x, y)
        net.predict(x + 1, batch_size=4)
    assert bits(out) == before


def test_fit_is_equal():
    net, twin = pair()
    x, y = batch(0, 23)
    histories = [one.fit(x, y, batch_size=5, epochs=3, validation_data=batch(1, 8), verbose=False)
                 for one in (net, twin)]  # fmt: skip
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert histories[0][name] == histories[1][name]
    assert state_of(net) == state_of(twin)


def test_steps_by_hand_and_recorded_ones_take_turns():
    """Each explicit step counts, also behind replays."""
    net, twin = pair()
    for number in range(8):
        for one in (net, twin):
            if number in (3, 4, 6):
                explicit_step(one, *batch(number))
            else:
                one.train_one_batch(*batch(number))
        assert state_of(net) == state_of(twin)
    assert net.optimizer.step == 8


def test_a_step_by_hand_recorded_by_the_user():
    """`device.recording()` around the explicit loop."""
    net, twin = small(False), small(False)
    x, y = (tensor.from_numpy(array, net.device) for array in batch(0))
    with net.device.recording() as graph:
        explicit_step(net, x, y)
    for number in range(4):
        given = batch(number)
        x.copy_from_numpy(given[0])
        y.copy_from_numpy(given[1])
        if number:
            net.optimizer.begin_step()
        graph.run()
        explicit_step(twin, *given)
        assert state_of(net) == state_of(twin)


# --- modes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", ["", "off"])
@pytest.mark.parametrize("checked", ["", "1"])
def test_unplanned_and_checked_steps_are_equal(monkeypatch, plan, checked):
    monkeypatch.setenv("SINGA_LITE_PLAN", plan)
    monkeypatch.setenv("SINGA_LITE_CHECKED", checked)
    net, twin = pair()
    assert_equal_steps(net, twin, *(batch(number) for number in range(3)))
    plan_of = net.memory_plan
    apart = sum(request.size for request in requests(plan_of.placed.planned))
    assert (plan_of.arena_bytes == apart) == (plan == "off")


@pytest.mark.parametrize("freeze", ["joined", "dense"])
def test_frozen_layers(freeze):
    net, twin = small(), small()
    net.compile(optimizer.Adam(), freeze=freeze)
    twin.compile(optimizer.Adam(), freeze=freeze, graph=False)
    before = state_of(net)
    assert_equal_steps(net, twin, *(batch(number) for number in range(3)))
    after = state_of(net)
    assert after["stem: weight"] == before["stem: weight"]
    assert after["norm: running_mean"] == before["norm: running_mean"]
    assert after["dense: weight"] != before["dense: weight"]


# --- no allocation ------------------------------------------------------------------------------------------


def traced_after(graph: Graph, runs: int) -> int:
    """Bytes that Python holds after so many replays; collecting garbage also empties its lists of free objects."""
    for _ in range(runs):
        graph.run()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_a_replay_allocates_nothing():
    net = small(make=lambda: optimizer.Adam(lr=1e-3))
    net.train_one_batch(*batch(0))
    graph = net.training_graph
    graph.run()
    gc.collect()
    pool = net.device.pool
    level = pool.used
    pool.reset_high_water()
    tracemalloc.start()
    try:
        start = traced_after(graph, 3)
        grown = traced_after(graph, 50) - start
    finally:
        tracemalloc.stop()
    assert (pool.used, pool.high_water) == (level, level)
    assert grown < 2048


def test_a_batch_costs_its_results_only():
    net = small()
    for number in range(3):
        net.train_one_batch(*batch(number))
    gc.collect()
    pool = net.device.pool
    level = pool.used
    pool.reset_high_water()
    for number in range(10):
        net.train_one_batch(*batch(number))
    assert pool.used == level
    assert pool.high_water == level + 2 * 64


def test_all_memory_goes_back_with_the_net():
    on = device.new_cpu()
    net = small(on=on)
    net.train_one_batch(*batch(0))
    net.train_one_batch(*batch(0, 20))
    net.evaluate(*batch(1, 20))
    net.predict(batch(1, 20)[0])
    net.plan_batch(50)
    assert on.pool.used > 0
    del net
    gc.collect()
    assert on.pool.used == 0


def test_the_arena_goes_back_when_the_net_is_compiled_anew():
    net = small()
    bare = net.device.pool.used
    net.train_one_batch(*batch(0, 40))
    net.compile(optimizer.SGD(), graph=False)
    gc.collect()
    assert net.device.pool.used == bare


# --- changes of the net -------------------------------------------------------------------------------------


def test_rules_registered_later_take_effect():
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    for one in (net, twin):
        one.optimizer.register("*/bias", lr_mult=0.0)
    bias = bits(net.parameters()["dense/bias"])
    assert_equal_steps(net, twin, batch(2), batch(3))
    assert bits(net.parameters()["dense/bias"]) == bias


def test_layers_added_later_take_effect():
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    for one in (net, twin):
        one.evaluate_one_batch(*batch(1))
        one.predict_one_batch(batch(1)[0])
        one.add(layers.Dense("extra", CLASSES))
    assert_equal_steps(net, twin, batch(2), batch(3))
    x, y = batch(4)
    assert [bits(v) for v in net.evaluate_one_batch(x, y)] == [bits(v) for v in twin.evaluate_one_batch(x, y)]
    assert bits(net.predict_one_batch(x)) == bits(twin.predict_one_batch(x))


def test_another_loss_or_metric_takes_effect():
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0))
    for one in (net, twin):
        one.loss, one.metric = loss.SigmoidCrossEntropy(), None
    x, y = batch(1)
    rows = np.eye(CLASSES, dtype="f")[y]
    for one in (net, twin):
        assert one.train_one_batch(x, rows)[1] is None
    assert state_of(net) == state_of(twin)


def test_another_optimizer_takes_effect():
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    for one, graph in ((net, True), (twin, False)):
        one.compile(optimizer.Adam(), graph=graph)
    assert_equal_steps(net, twin, batch(2), batch(3))


def test_loading_into_a_net_with_recorded_steps(tmp_path):
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    net.save(tmp_path / "net.h5")
    wanted = state_of(net)
    assert_equal_steps(net, twin, batch(2), batch(3))
    for one in (net, twin):
        one.load(tmp_path / "net.h5")
    assert state_of(net) == wanted
    assert_equal_steps(net, twin, batch(4), batch(5))


def test_values_set_from_the_host_take_effect():
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    for one in (net, twin):
        weight = one.parameters()["dense/weight"]
        weight.copy_from_numpy(np.full(weight.shape, 0.01))
    assert_equal_steps(net, twin, batch(2))


# --- what goes wrong ----------------------------------------------------------------------------------------


def stateless(state: dict[str, Any]) -> dict[str, Any]:
    """Without state of the optimizer that is all zeros: as if there were none."""
    return {key: value for key, value in state.items() if not (isinstance(value, tuple) and not any(value[2]))}


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("steps", [0, 2])
def test_a_layer_that_raises_while_recording_changes_nothing(where, steps):
    net, twin = pair()
    assert_equal_steps(net, twin, *(batch(number) for number in range(steps)))
    before = state_of(net)
    net.layers["scripted"].fail = where
    with pytest.raises(ZeroDivisionError):
        net.train_one_batch(*batch(7, 5))  # a new shape, so that it is recorded
    assert stateless(state_of(net)) == stateless(before)
    net.layers["scripted"].fail = ""
    assert_equal_steps(net, twin, batch(8, 5), batch(9), batch(10, 5))


def test_a_bad_batch_changes_nothing():
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    before = state_of(net)
    x, y = batch(2)
    for bad in ((x[:, :2], y), (x.astype("f8"), y), (x, y[:-1]), (x, y + CLASSES), (x, y + 0.5)):
        with pytest.raises((ValueError, TypeError)):
            net.train_one_batch(*bad)
        assert state_of(net) == before
    assert_equal_steps(net, twin, batch(2))


def test_a_schedule_that_fails_changes_nothing():
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    before = state_of(net)
    net.optimizer.schedule = schedule.get(lambda step: float("nan"))
    with pytest.raises(ValueError, match="schedule"):
        net.train_one_batch(*batch(2))
    assert state_of(net) == before
    net.optimizer.schedule = twin.optimizer.schedule
    assert_equal_steps(net, twin, batch(2))


class Interrupted(Exception):
    pass


def interrupt(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    """Let a kernel raise, in each set that has it."""

    def raising(*arrays: Any, **settings: Any) -> None:
        raise Interrupted(kernel)

    for kernels in kernel_sets():
        if kernel in kernels.kernels:
            monkeypatch.setitem(kernels.kernels, kernel, FunctionKernel(raising))


@pytest.mark.parametrize("kernel", ["sgd", "conv2d", "conv2d_gradient"])
@pytest.mark.parametrize("steps", [0, 2])
def test_a_kernel_that_raises_in_a_replay_leaves_a_step_that_is_not_whole(monkeypatch, tmp_path, kernel, steps):
    net, twin = pair()
    assert_equal_steps(net, twin, *(batch(number) for number in range(steps)))
    with monkeypatch.context() as patch:
        interrupt(patch, kernel)
        with pytest.raises(Interrupted):
            net.train_one_batch(*batch(5, 5))
    for attempt in (
        lambda: net.train_one_batch(*batch(6)),
        lambda: net.train_one_batch(*batch(6, 5)),
        lambda: net.forward(True, batch(6)[0]),
        lambda: net.plan_batch(5),
    ):
        with pytest.raises(GraphError, match="whole step"):
            attempt()
    with pytest.raises(SnapshotError, match="whole step"):
        net.save(tmp_path / "net.h5")
    net.compile(optimizer.SGD())
    with pytest.raises(GraphError, match="whole step"):
        net.train_one_batch(*batch(6))
    net.discard_step()
    net.train_one_batch(*batch(6))
    net.save(tmp_path / "net.h5")


def test_a_snapshot_ends_an_interrupted_step(monkeypatch, tmp_path):
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    net.save(tmp_path / "net.h5")
    with monkeypatch.context() as patch:
        interrupt(patch, "conv2d_gradient")
        with pytest.raises(Interrupted):
            net.train_one_batch(*batch(5, 5))
    net.load(tmp_path / "net.h5")
    assert_equal_steps(net, twin, batch(2))


def test_an_evaluation_that_fails_does_not_mark_the_net(monkeypatch):
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0))
    with monkeypatch.context() as patch:
        interrupt(patch, "batch_norm_inference")
        for attempt in (lambda: net.evaluate_one_batch(*batch(1)), lambda: net.predict_one_batch(batch(1)[0])):
            with pytest.raises(Interrupted):
                attempt()
    assert_equal_steps(net, twin, batch(2))


def test_a_limit_below_the_arena_is_an_error_that_changes_nothing():
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    before = state_of(net)
    pool = net.device.pool
    pool.set_limit(pool.total)
    for _ in range(2):
        with pytest.raises(OutOfMemoryError):
            net.train_one_batch(*batch(2, 700))
        assert state_of(net) == before
    assert_equal_steps(net, twin, batch(2))
    pool.set_limit(None)
    assert_equal_steps(net, twin, batch(3, 700), batch(4))


def test_a_limit_below_the_arena_of_the_first_batch():
    net, twin = pair()
    before = state_of(net)
    pool = net.device.pool
    pool.set_limit(pool.used + 4096)
    with pytest.raises(OutOfMemoryError):
        net.train_one_batch(*batch(0, 300))
    assert stateless(state_of(net)) == stateless(before)
    pool.set_limit(None)
    assert_equal_steps(net, twin, batch(0, 300), batch(1))


def test_no_room_to_bind_again_is_no_half_step():
    """A larger batch failed, its arena went, and what the smaller one needs is lent elsewhere meanwhile."""
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0, 60), batch(1, 60))
    before, pool = state_of(net), net.device.pool
    pool.set_limit(pool.total + (2 << 20))  # the batch fits, the arena for it does not
    with pytest.raises(OutOfMemoryError):
        net.train_one_batch(*batch(2, 3000))
    pool.set_limit(pool.total)
    lent = []
    with suppress(OutOfMemoryError):
        while True:
            lent.append(pool.take(1024))
    with pytest.raises(OutOfMemoryError):
        net.train_one_batch(*batch(2, 60))
    assert state_of(net) == before
    for region in lent:
        pool.give(region)
    assert_equal_steps(net, twin, batch(2, 60))


def test_training_inside_a_recording_is_refused_and_changes_nothing():
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    before = state_of(net)
    with net.device.recording():
        for count in (9, 5):  # recorded already, and new
            with pytest.raises(GraphError):
                net.train_one_batch(*batch(2, count))
    assert state_of(net) == before
    assert_equal_steps(net, twin, batch(2), batch(3, 5))


# --- other nets ---------------------------------------------------------------------------------------------


def test_a_net_without_parameters():
    def make(graph: bool) -> FeedForwardNet:
        net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu())
        net.add(layers.Activation("act", input_sample_shape=(4,)))
        net.compile(optimizer.SGD(), graph=graph)
        return net

    x = np.random.default_rng(1).standard_normal((5, 4)).astype("f")
    net, twin = make(True), make(False)
    for _ in range(3):
        assert bits(net.predict_one_batch(x)) == bits(twin.predict_one_batch(x))
        assert [bits(v) for v in net.evaluate_one_batch(x, x)[:1]] == [
            bits(v) for v in twin.evaluate_one_batch(x, x)[:1]
        ]


def test_an_output_that_is_a_view_of_the_input():
    net = FeedForwardNet(device=device.new_cpu())
    net.add(layers.Flatten("flat", input_sample_shape=(2, 3)))
    net.compile(optimizer.SGD())
    x = np.arange(24, dtype="f").reshape(4, 2, 3)
    for factor in (1, 2):
        assert tensor.to_numpy(net.predict(factor * x)).tolist() == (factor * x).reshape(4, 6).tolist()


def test_custom_losses_that_read_values_on_the_host_are_refused():
    """They would see the first batch only."""

    class Careless(loss.SoftmaxCrossEntropy):
        def compute(self, x: Tensor, target: Tensor) -> Tensor:
            rows = np.eye(x.shape[1], dtype="f")[tensor.to_numpy(target)]
            return super().compute(x, tensor.from_numpy(rows, x.device))

    net = small()
    net.compile(optimizer.SGD(), loss=Careless())
    before = state_of(net)
    with pytest.raises(GraphError, match="reading"):
        net.train_one_batch(*batch(0))
    assert stateless(state_of(net)) == stateless(before)
    net.compile(optimizer.SGD(), loss=Careless(), graph=False)
    assert float(net.train_one_batch(*batch(0))[0]) > 0
