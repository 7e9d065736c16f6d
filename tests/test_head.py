"""Nets whose scores exist for some rows at a time: they train as with all scores at once, in every mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kernel_sets import kernel_sets
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, tensor
from singa_lite.graph_parts.budget_error import BudgetError
from singa_lite.loss import Loss

BATCH, TIME, IDS, DIM = 9, 37, 211, 7
RNG = np.random.default_rng(5)
X = RNG.integers(1, IDS, (BATCH, TIME))
Y = RNG.integers(0, IDS, (BATCH, TIME))
Y[3:5, 7:] = 0
SETS = [kernels.name for kernels in kernel_sets()]


@pytest.fixture(params=SETS)
def on(request: Any) -> Iterator[Any]:
    """A device whose tiles are so small that these nets have some."""
    found = device.new_cpu(kernels=request.param)
    before, found.kernels.tile_bytes = found.kernels.tile_bytes, 64
    yield found
    found.kernels.tile_bytes = before


def net_of(
    on: Any, tied: bool = True, criterion: Loss | None = None, measured: Any = None, features: int = DIM, **options: Any
) -> Any:
    """Ids to scores of ids. options: of `compile`."""
    net = FeedForwardNet(criterion or loss.SoftmaxCrossEntropy(-1), measured, device=on, seed=3)
    table = net.add(layers.Embedding("table", IDS, features, weight_init="glorot_uniform", input_sample_shape=(TIME,)))
    net.add(layers.Dense("hidden", features))
    net.add(layers.Activation("act", "tanh"))
    net.add(layers.TiedDense("head", table) if tied else layers.Dense("head", IDS))
    rule = options.pop("rule", None) or optimizer.AdamW(
        0.01, epsilon=1e-3
    )  # rounding of small gradients would move much by less
    net.compile(rule, **options)
    return net


def values(net: Any) -> dict[str, np.ndarray]:
    return {name: tensor.to_numpy(value) for name, value in net.parameters().items()}


def trained(net: Any, steps: int = 2) -> tuple[list[tuple[float, ...]], dict[str, np.ndarray]]:
    seen = [tuple(float(v) for v in net.train_one_batch(X, Y) if v is not None) for _ in range(steps)]
    return seen, values(net)


def kernels_of(net: Any) -> list[str]:
    return [i.kernel for i in net.memory_plan.placed.planned.instructions]


def assert_alike(net: Any, other: Any, rtol: float = 2e-4) -> None:
    """Both train alike, but for rounding."""
    (seen, moved), (wanted, held) = trained(net), trained(other)
    np.testing.assert_allclose(seen, wanted, rtol=1e-5)
    for name, value in moved.items():
        np.testing.assert_allclose(value, held[name], rtol=rtol, atol=2e-5, err_msg=name)


CRITERIA: dict[str, Callable[[], Loss]] = {
    "plain": lambda: loss.SoftmaxCrossEntropy(-1),
    "ignored": lambda: loss.SoftmaxCrossEntropy(-1, ignore_index=0),
    "ignored and smoothed": lambda: loss.SoftmaxCrossEntropy(-1, ignore_index=0, label_smoothing=0.1),
}


@pytest.mark.parametrize(("tied", "criterion"), [(True, "plain"), (False, "ignored"), (True, "ignored and smoothed")])
def test_tiles_of_rows_train_as_all_rows_do(on, tied, criterion):
    tiles, whole = (net_of(on, tied, CRITERIA[criterion](), fuse=fuse) for fuse in (True, False))
    assert_alike(tiles, whole)
    assert kernels_of(tiles).count("softmax_cross_entropy") == 3
    assert tiles.memory_plan.gains["head"] > BATCH * TIME * IDS * 2


@pytest.mark.parametrize("measured", [metric.Accuracy(-1), metric.Perplexity(-1)])
def test_metrics_are_measured_tile_by_tile(on, measured):
    tiles, whole = (net_of(on, measured=measured, fuse=fuse) for fuse in (True, False))
    assert_alike(tiles, whole)
    assert tiles.memory_plan.arena_bytes < BATCH * TIME * IDS * 4 < whole.memory_plan.arena_bytes
    evaluated = [net.evaluate(X, Y, batch_size=BATCH) for net in (tiles, whole)]
    np.testing.assert_allclose(*([float(v) for v in pair] for pair in evaluated), rtol=1e-5)


def test_an_evaluation_has_no_scores_as_a_whole(on):
    plans = [net_of(on, fuse=fuse).plan_batch(BATCH).beside["evaluation"] for fuse in (True, False)]
    assert plans[0] < BATCH * TIME * IDS * 4 / 2 < plans[1]


def test_scores_that_a_user_asks_for_are_there(on):
    net = net_of(on)
    net.train_one_batch(X, Y)
    scores = net.predict(X)
    assert scores.shape == (BATCH, TIME, IDS)
    table = values(net)["table/weight"]
    hidden = np.tanh(table[X] @ values(net)["hidden/weight"] + values(net)["hidden/bias"])
    np.testing.assert_allclose(scores, hidden @ table.T, rtol=1e-4, atol=1e-5)


def test_eager_steps_and_micro_batches_train_alike(on):
    assert_alike(net_of(on), net_of(on, graph=False))
    assert_alike(net_of(on, micro_batches=1), net_of(on, micro_batches=3), rtol=1e-3)


def test_clipped_by_the_norm_of_all_gradients(on):
    assert_alike(net_of(on, clip_global_norm=0.02), net_of(on, clip_global_norm=0.02, fuse=False))


def test_within_a_budget_tiles_are_of_classes_too():
    on = device.new_cpu(kernels="numpy")
    before, on.kernels.tile_bytes = on.kernels.tile_bytes, 64
    try:
        with pytest.raises(BudgetError) as caught:
            net_of(on, features=40).plan_batch(BATCH, memory_budget=1000)
        net, free = (net_of(on, features=40, memory_budget=n) for n in (caught.value.total_bytes, None))
        assert_alike(net, free)
    finally:
        on.kernels.tile_bytes = before
    assert kernels_of(net).count("softmax_classes_derivative") > 1
    assert "softmax_classes_derivative" not in kernels_of(free)
    assert net.memory_plan.arena_bytes < free.memory_plan.arena_bytes - IDS * 40 * 4
    assert net.memory_plan.estimated_slowdown > 0
