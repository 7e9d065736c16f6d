"""What lies beside a step counts to the byte: the optimizer's state beside an evaluation, results, what is kept."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import pytest

from nets import bits, state_of
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer
from singa_lite.graph_parts.budget_error import BudgetError

RNG = np.random.default_rng(14)
COUNT = 16
X, Y = RNG.standard_normal((3 * COUNT - 4, 3, 12, 12), dtype=np.float32), RNG.integers(0, 5, 3 * COUNT - 4)


def net(opt: Callable[[], optimizer.Optimizer] = optimizer.Adam, **compiling: Any) -> FeedForwardNet:
    """Two convolutions, dropout, and a dense layer whose state is a large part of all."""
    made = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=device.new_cpu(kernels="numpy"), seed=3)
    made.add(layers.Conv2D("first", 8, 3, input_sample_shape=(3, 12, 12)))
    made.add(layers.Activation("act"))
    made.add(layers.Conv2D("second", 8, 1))
    made.add(layers.Dropout("drop", 0.3))
    made.add(layers.Flatten("flat"))
    made.add(layers.Dense("scores", 5))
    made.compile(opt(), **compiling)
    return made


def done(made: FeedForwardNet, most: int | None = None) -> list[Any]:
    """Steps of several forms, one after the other; the pool never had more than `most` in use."""
    count, seen = COUNT, list[Any]()
    for _ in range(2):
        seen.append(bits(made.evaluate_one_batch(X[:count], Y[:count])[0]))
        seen.append(bits(made.predict(X[: count + 2], count)))
        history = made.fit(X, Y, batch_size=count, epochs=2, validation_data=(X[:19], Y[:19]), verbose=False)
        seen += [history.history["loss"], history.history["val_loss"], made.evaluate(X, Y, count)]
        seen.append(bits(made.train_one_batch(X[: count // 2], Y[: count // 2])[0]))
        if most is not None:
            assert made.device.pool.high_water <= most
    return [*seen, state_of(made)]


GIVEN = {
    "pieces": {"micro_batches": 2, "clip_global_norm": 0.1},
    "kept, in groups": {"accumulate": 2, "keep": ["scores"]},
    "groups with sums": {"accumulate": 3, "clip_global_norm": 1.0},
    "state in 8 bits": {"state_dtype": "int8"},
}


@pytest.mark.parametrize("opt", [optimizer.Adam, lambda: optimizer.SGD(0.1, momentum=0.9)], ids=["Adam", "momentum"])
@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_a_budget_that_a_plan_keeps_to_the_byte_is_kept_by_all_steps(opt, given):
    with pytest.raises(BudgetError) as caught:
        net(opt, **given).plan_batch(COUNT, memory_budget=1)
    least = caught.value.total_bytes
    assert done(net(opt, memory_budget=least, **given), least) == done(net(opt, **given))


def test_the_optimizers_state_counts_beside_an_evaluation_whose_net_trains_no_more(tmp_path):
    """State that is there, and that no recorded step uses."""
    trained = net()
    trained.train_one_batch(X[:COUNT], Y[:COUNT])
    trained.save(tmp_path / "trained.h5")
    loaded = net(memory_budget=10**9)
    loaded.load(tmp_path / "trained.h5")
    loaded.evaluate_one_batch(X[:COUNT], Y[:COUNT])
    (graph,) = loaded._steps._recorded.graphs()
    state = sum(each.nbytes for slots in trained.optimizer.state.values() for each in slots.values())
    assert graph.bound.taken >= state > 2 * 4 * 5 * 8 * 144


def test_steps_that_went_hold_nothing():
    """Neither their results, nor what was kept of them, though the last one's plan can still be asked for."""
    made = net(memory_budget=10**9, keep=["first"])
    made.train_one_batch(X[:COUNT], Y[:COUNT])
    plan, used = made.memory_plan.total_bytes, made.device.pool.used
    made._steps._let_go_of_others(None)
    kept = made.kept["first"].output.nbytes
    assert made.device.pool.used <= used - made._steps.arena.nbytes
    assert kept and made.memory_plan.total_bytes == plan
    made._steps.seen = None
    assert made.device.pool.used <= used - kept


def test_a_budget_that_is_missed_keeps_no_callers_frame_alive():
    """By an error within a frame of its own traceback: what callers hold would go when garbage is collected."""

    class Batch:
        pass

    def missed() -> ref[Batch]:
        batch = Batch()
        with pytest.raises(BudgetError):
            net().plan_batch(COUNT, memory_budget=1)
        return ref(batch)

    gc.collect()
    gc.disable()
    try:
        assert missed()() is None
    finally:
        gc.enable()


def test_the_least_for_a_number_of_samples_does_for_all_of_fit():
    """Kernels may ask for more scratch with the shorter last batch: oneDNN's normalisations do with 14 of 16."""

    def normalised(**compiling: Any) -> FeedForwardNet:
        try:
            on = device.new_cpu(kernels="onednn")
        except device.DeviceError as error:  # says what brings the library
            pytest.skip(str(error))
        made = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on, seed=3)
        made.add(layers.Conv2D("first", 8, 3, input_sample_shape=(3, 8, 8)))
        for number in range(2):
            made.add(layers.BatchNormalization(f"norm{number}"))
            made.add(layers.Activation(f"act{number}"))
        made.add(layers.MaxPooling2D("pool", 2, 2))
        made.add(layers.Flatten("flat"))
        made.add(layers.Dense("scores", 5))
        made.compile(optimizer.SGD(0.1, momentum=0.9), **compiling)
        return made

    with pytest.raises(BudgetError) as caught:
        normalised().plan_batch(16, memory_budget=1, samples=30)
    least = caught.value.total_bytes
    assert normalised().plan_batch(16, memory_budget=least, samples=30).total_bytes <= least
    made = normalised(memory_budget=least)
    made.fit(X[:30, :, :8, :8], Y[:30], batch_size=16, epochs=2, verbose=False)
    assert made.device.pool.high_water <= least
