"""Recorded steps of nets: equal to eager work bit for bit, whatever changes and whatever goes wrong."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from kernel_sets import sets_of_a_chain
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
from singa_lite.runtime.pool import OutOfMemoryError
from singa_lite.tensor import Block

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
        assert [v if v is None else bits(v) for v in found] == [v if v is None else bits(v) for v in wanted]
        assert state_of(net) == state_of(twin)


# --- what changes between batches ---------------------------------------------------------------------------


def test_results_stay_and_a_batch_may_be_overwritten_after_its_step():
    net, twin = pair()
    x, y = batch(0)
    found, wanted = [], []
    for number in range(4):
        x[...], y[...] = batch(number)
        found += net.train_one_batch(x, y)
        wanted += twin.train_one_batch(*batch(number))
    assert [*map(bits, found)] == [*map(bits, wanted)]
    assert state_of(net) == state_of(twin)


# --- shapes, evaluation, prediction -------------------------------------------------------------------------


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


class Careless(loss.SoftmaxCrossEntropy):
    """Reads the targets on the host: a recorded step would see those of the first batch only."""

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        rows = np.eye(x.shape[1], dtype="f")[tensor.to_numpy(target)]
        return super().compute(x, tensor.from_numpy(rows, x.device))


@pytest.mark.parametrize(
    ("attribute", "wrong", "error"),
    [("schedule", schedule.get(lambda step: float("nan")), ValueError), ("loss", Careless(), GraphError)],
)
def test_a_schedule_or_a_loss_that_fails_changes_nothing(attribute, wrong, error):
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    before = state_of(net)
    of = net.optimizer if attribute == "schedule" else net
    right = getattr(of, attribute)
    setattr(of, attribute, wrong)
    with pytest.raises(error, match=attribute if attribute == "schedule" else "reading"):
        net.train_one_batch(*batch(2))
    assert state_of(net) == before
    setattr(of, attribute, right)
    assert_equal_steps(net, twin, batch(2))


def test_a_recording_around_a_step_changes_nothing():
    net, twin = pair()
    assert_equal_steps(net, twin, batch(0), batch(1))
    before = state_of(net)
    with net.device.recording():
        for count in (9, 5):  # recorded already, and new
            with pytest.raises(GraphError):
                net.train_one_batch(*batch(2, count))
    assert state_of(net) == before
    assert_equal_steps(net, twin, batch(2), batch(3, 5))


class Interrupted(Exception):
    pass


def interrupt(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    """Let a kernel raise, in each set that has it."""

    def raising(*arrays: Any, **settings: Any) -> None:
        raise Interrupted(kernel)

    for kernels in sets_of_a_chain():
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


def test_a_batch_that_was_too_large_gives_its_memory_back():
    net = FeedForwardNet("mse", device=device.new_cpu(120_000, "numpy"), seed=1)
    net.add(layers.Dense("hidden", 16, input_sample_shape=(64,)))
    net.add(layers.Dense("out", 8))
    net.compile(optimizer.SGD(0.1))
    for size in (400, 2, 420, 2):  # 400 samples are 100 KiB, and leave nothing for the step
        batch = np.ones((size, 64), "f"), np.ones((size, 8), "f")
        if size == 2:
            net.train_one_batch(*batch)
        else:
            with pytest.raises(OutOfMemoryError):
                net.train_one_batch(*batch)


# --- many forms of batches -----------------------------------------------------------------------------------


def all_steps(net: FeedForwardNet, number: int, count: int) -> list[Any]:
    x, y = batch(number, count)
    seen = [bits(value) for value in (*net.train_one_batch(x, y), *net.evaluate_one_batch(x, y))]
    return [*seen, bits(net.predict_one_batch(x))]


def fed_bytes(count: int) -> int:
    return sum(-(-array.nbytes // 64) * 64 for array in batch(0, count))


# --- inputs -------------------------------------------------------------------------------------------------


def test_inputs_of_all_forms_and_kinds_of_steps_take_what_the_largest_takes():
    net = small(make=optimizer.Adam)
    for count in (30, 7, 12, 1):
        all_steps(net, 0, count)
    assert net.trainer.steps.feeds.nbytes == fed_bytes(30)
    level = net.device.pool.used
    all_steps(net, 0, 40)
    grown = net.device.pool.used - level
    arena = net.memory_plan.arena_bytes - net.plan_batch(30, samples=30).arena_bytes
    results = 5 * 64 + 4 * CLASSES * 40 + 64
    assert grown <= fed_bytes(40) - fed_bytes(30) + arena + results


def test_a_step_whose_batch_was_overwritten_is_not_run_by_hand():
    net, twin = small(make=optimizer.Adam), small(make=optimizer.Adam)
    for one in (net, twin):
        one.train_one_batch(*batch(0, 8))
    graph = net.training_graph
    graph.run()
    twin.training_graph.run()
    assert state_of(net) == state_of(twin)
    net.evaluate_one_batch(*batch(1, 8))
    for run in (graph.run, lambda: graph.run("dependencies"), lambda: graph.profile(1)):
        with pytest.raises(GraphError, match="fed"):
            run()
    assert state_of(net) == state_of(twin)
    for one in (net, twin):
        one.train_one_batch(*batch(2, 8))
        one.training_graph.run()
    assert state_of(net) == state_of(twin)


def test_a_prediction_that_is_a_view_of_its_input_outlives_the_net():
    net = FeedForwardNet(device=device.new_cpu())
    net.add(layers.Flatten("flat", input_sample_shape=(2, 3)))
    net.compile(optimizer.SGD())
    x = np.arange(24, dtype="f").reshape(4, 2, 3)
    out = net.predict_one_batch(x)
    pool = net.device.pool
    del net
    gc.collect()
    lent = [pool.take(96) for _ in range(8)]
    for region in lent:
        region.memory.fill(7)
    assert tensor.to_numpy(out).tolist() == x.reshape(4, 6).tolist()
    for region in lent:
        pool.give(region)
    del out
    assert pool.used == 0


@pytest.mark.parametrize("call", range(4))
def test_an_interrupt_while_a_larger_batch_moves_the_others_loses_no_form(monkeypatch, call):
    """Of two blocks of a form, the bytes are taken from one, or from both, or given to one."""
    net, twin, calls, give = small(make=optimizer.Adam), small(make=optimizer.Adam), [0], Block.set_give

    def interrupted(block: Block, how: Any) -> None:
        calls[0] += 1
        if calls[0] == call + 1:
            raise KeyboardInterrupt
        give(block, how)

    for one in (net, twin):
        one.train_one_batch(*batch(0, 4))
        one.train_one_batch(*batch(1, 4))
    with monkeypatch.context() as changed:
        changed.setattr(Block, "set_give", interrupted)
        with pytest.raises(KeyboardInterrupt):
            net.train_one_batch(*batch(2, 9))
    if net.unfinished_at:
        net.discard_step()
    for number, count in ((3, 4), (4, 9), (5, 4)):
        assert all_steps(net, number, count) == all_steps(twin, number, count)


# --- how many -----------------------------------------------------------------------------------------------


def test_many_batch_sizes_keep_no_more_than_a_few(monkeypatch):
    """Without the garbage collector: a step that goes gives back all it had at once."""
    monkeypatch.setenv("SINGA_LITE_STEPS", "6")
    net = small(make=optimizer.Adam)
    all_steps(net, 0, 30)
    used = []
    gc.collect()
    gc.disable()
    try:
        for count in range(29, 17, -1):
            all_steps(net, 0, count)
            used.append(net.device.pool.used - net.trainer.steps.arena.nbytes)  # which a smaller batch may make larger
    finally:
        gc.enable()
    assert len(net.recorded_forms) == 6
    assert max(used) - min(used) < 6 * (4 * CLASSES * 30 + 256), "outputs of six steps at most"
    assert used[-1] <= used[6]


def test_what_goes_is_what_was_used_least_recently(monkeypatch):
    monkeypatch.setenv("SINGA_LITE_STEPS", "3")
    net = small(make=optimizer.Adam)
    for count in (9, 5, 7, 9, 4):
        net.train_one_batch(*batch(0, count))
    assert [form[0][2][0] for _, form in net.recorded_forms] == [7, 9, 4]
    for count in (1, 2, 3, 5):
        net.predict_one_batch(batch(0, count)[0])
    assert ("train", 4) in [(kind, form[0][2][0]) for kind, form in net.recorded_forms], "the last that trained stays"
    net.training_graph.memory_plan.check()


@pytest.mark.parametrize("most", ["0", "-1", "2.5", "many"])
def test_a_number_of_steps_that_is_none(monkeypatch, most):
    monkeypatch.setenv("SINGA_LITE_STEPS", most)
    with pytest.raises((ValueError, TypeError), match="SINGA_LITE_STEPS"):
        small(make=optimizer.Adam)


# --- giving back --------------------------------------------------------------------------------------------


def test_compiling_anew_gives_all_of_it_back():
    net = small(make=optimizer.Adam)
    bare = net.device.pool.used
    gc.collect()
    gc.disable()
    try:
        for count in (20, 9, 3):
            all_steps(net, 0, count)
        net.compile(optimizer.Adam())
        assert net.device.pool.used == bare, "arena, inputs, outputs and the old optimizer's state"
    finally:
        gc.enable()
    all_steps(net, 0, 9)
    assert net.device.pool.used > bare
