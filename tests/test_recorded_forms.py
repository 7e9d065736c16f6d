"""Many forms of batches: their inputs share one place, their steps are bounded in number, and results stay the same."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from nets import bits, state_of
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, tensor
from singa_lite.errors import GraphError
from singa_lite.tensor import Block

CLASSES, SHAPE = 5, (3, 6, 7)


def small(graph: bool = True) -> FeedForwardNet:
    """Random state, running statistics, momentum and update counts: all that a lost step could lose."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device.new_cpu(), seed=4)
    net.add(layers.Conv2D("conv", 4, 3, input_sample_shape=SHAPE))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Dropout("drop", 0.4))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", CLASSES))
    net.compile(optimizer.Adam(), graph=graph)
    return net


def batch(number: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([number, count])
    return rng.standard_normal((count, *SHAPE)).astype("f"), rng.integers(0, CLASSES, count)


def all_steps(net: FeedForwardNet, number: int, count: int) -> list[Any]:
    x, y = batch(number, count)
    seen = [bits(value) for value in (*net.train_one_batch(x, y), *net.evaluate_one_batch(x, y))]
    return [*seen, bits(net.predict_one_batch(x))]


def fed_bytes(count: int) -> int:
    return sum(-(-array.nbytes // 64) * 64 for array in batch(0, count))


# --- inputs -------------------------------------------------------------------------------------------------


def test_inputs_of_all_forms_and_kinds_of_steps_take_what_the_largest_takes():
    net = small()
    for count in (30, 7, 12, 1):
        all_steps(net, 0, count)
    assert net._steps.feeds.nbytes == fed_bytes(30)
    level = net.device.pool.used
    all_steps(net, 0, 40)
    grown = net.device.pool.used - level
    arena = net.memory_plan.arena_bytes - net.plan_batch(30, samples=30).arena_bytes
    results = 5 * 64 + 4 * CLASSES * 40 + 64
    assert grown <= fed_bytes(40) - fed_bytes(30) + arena + results


def test_a_step_whose_batch_was_overwritten_is_not_run_by_hand():
    net, twin = small(), small()
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
    net, twin, calls, give = small(), small(), [0], Block.set_give

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
    net = small()
    all_steps(net, 0, 100)
    used = []
    gc.collect()
    gc.disable()
    try:
        for count in range(99, 79, -1):
            all_steps(net, 0, count)
            used.append(net.device.pool.used - net._steps.arena.nbytes)  # which a smaller batch may make larger
    finally:
        gc.enable()
    assert len(net.recorded_forms) == 6
    assert max(used) - min(used) < 6 * (4 * CLASSES * 100 + 256), "outputs of six steps at most"
    assert used[-1] <= used[10]


def test_what_goes_is_what_was_used_least_recently(monkeypatch):
    monkeypatch.setenv("SINGA_LITE_STEPS", "3")
    net = small()
    for count in (9, 5, 7, 9, 4):
        net.train_one_batch(*batch(0, count))
    assert [form[0][2][0] for _, form in net.recorded_forms] == [7, 9, 4]
    for count in (1, 2, 3, 5):
        net.predict_one_batch(batch(0, count)[0])
    assert ("train", 4) in [(kind, form[0][2][0]) for kind, form in net.recorded_forms], "the last that trained stays"
    net.training_graph.memory_plan.check()


@pytest.mark.parametrize("most", ["2", "16"])
def test_steps_that_come_back_go_on_to_the_same_bits(monkeypatch, most):
    """Random state, statistics, moments and counts are no part of a recorded step."""
    monkeypatch.setenv("SINGA_LITE_STEPS", most)
    net, twin = small(), small(False)
    for place, count in enumerate((4, 9, 2, 30, 4, 9, 2)):
        assert all_steps(net, place, count) == all_steps(twin, place, count)
        assert state_of(net) == state_of(twin)


@pytest.mark.parametrize("most", ["0", "-1", "2.5", "many"])
def test_a_number_of_steps_that_is_none(monkeypatch, most):
    monkeypatch.setenv("SINGA_LITE_STEPS", most)
    with pytest.raises((ValueError, TypeError), match="SINGA_LITE_STEPS"):
        small()


# --- giving back --------------------------------------------------------------------------------------------


def test_compiling_anew_gives_all_of_it_back():
    net = small()
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
