"""Nets over ids: every way to give them, updates by rows, and scores that exist for some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import skips
from kernel_sets import kernel_sets
from nets import state_of
from singa_lite import FeedForwardNet, GraphError, ShapeError, device, layers, loss, metric, optimizer, tensor
from singa_lite.graph.budget_error import BudgetError
from singa_lite.loss import Loss
from singa_lite.regularizer import NormConstraint

ROWS, TIME, DIM, CLASSES = 23, 5, 6, 4
RNG = np.random.default_rng(3)
X = RNG.integers(0, ROWS - 4, (9, TIME))  # the last rows never occur
Y = RNG.integers(0, CLASSES, (9, TIME))
SETS = pytest.mark.parametrize("kernels", ["numpy", "auto"])

OPTIMIZERS = {
    "plain": lambda: optimizer.SGD(0.5),
    "momentum": lambda: optimizer.SGD(0.5, momentum=0.9),
    "decay": lambda: optimizer.SGD(0.5, weight_decay=0.1),
    "adam": lambda: optimizer.Adam(0.01),
    "clipped": lambda: optimizer.SGD(0.5, constraint=NormConstraint(0.05)),
}


def net_of(opt: Any = None, kernels: str = "numpy", ids: int = ROWS, padding: int | None = 2, **compiling: Any) -> Any:
    net = FeedForwardNet(
        loss.SoftmaxCrossEntropy(-1), metric.Accuracy(-1), device=device.new_cpu(kernels=kernels), seed=7
    )
    net.add(layers.Embedding("table", ids, DIM, padding, input_sample_shape=(TIME,)))
    net.add(layers.LearnedPositions("positions"))
    net.add(layers.RMSNormalization("norm"))
    net.add(layers.Dense("hidden", 7))
    net.add(layers.Activation("relu"))
    net.add(layers.Dropout("drop", 0.2))
    net.add(layers.LayerNormalization("after"))
    net.add(layers.Dense("scores", CLASSES))
    net.compile(opt or optimizer.SGD(0.5), **compiling)
    return net


def trained(net: Any, steps: int = 3, dtype: Any = np.int64) -> dict[str, Any]:
    for _ in range(steps):
        net.train_one_batch(X.astype(dtype), Y)
    return state_of(net)


def kernels_of(net: Any) -> list[str]:
    return [row.kernel for row in net.memory_plan.placed.planned.instructions]


@SETS
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_only_plain_sgd_goes_by_rows_and_gives_what_the_whole_gradient_gives(kernels, name):
    net, whole = net_of(OPTIMIZERS[name](), kernels), net_of(OPTIMIZERS[name](), kernels, fuse=False)
    start = tensor.to_numpy(net.param_values()[0])
    trained(net)
    trained(whole)
    used = kernels_of(net)
    assert ("sgd_rows" in used, "embedding_gradient" in used) == (name == "plain", name != "plain")
    for mine, theirs in zip(net.param_values(), whole.param_values(), strict=True):
        np.testing.assert_allclose(tensor.to_numpy(mine), tensor.to_numpy(theirs), rtol=0, atol=2e-6)
    moved = (tensor.to_numpy(net.param_values()[0]) != start).any(axis=1)
    occurs = np.isin(np.arange(ROWS), X)
    still = ~occurs | (np.arange(ROWS) == 2)
    assert not moved[still].any() or name == "decay"
    assert moved[~still].all()


def test_a_whole_gradient_of_a_table_takes_no_bytes():
    plans = [net_of(ids=5000, fuse=fuse).plan_batch(9) for fuse in (True, False)]
    table = 5000 * DIM * 4
    assert plans[0].arena_bytes < table < plans[1].arena_bytes


@contextmanager
def tiles_of(nbytes: int, kernels: str = "numpy") -> Iterator[Any]:
    """A device where gradients are made and applied so many bytes at a time."""
    on = device.new_cpu(kernels=kernels)
    before, on.kernels.tile_bytes = on.kernels.tile_bytes, nbytes
    try:
        yield on
    finally:
        on.kernels.tile_bytes = before


def test_a_large_table_is_updated_some_rows_at_a_time_to_equal_bits():
    whole = trained(net_of(optimizer.Adam(0.01)))
    with tiles_of(ROWS * DIM * 4 // 5):
        net = net_of(optimizer.Adam(0.01))
        assert trained(net) == whole
        assert kernels_of(net).count("embedding_gradient") > 4


def test_ids_as_tensors_lists_and_in_another_byte_order():
    wanted = trained(net_of(), 1)
    for given in (tensor.from_numpy(X), X.tolist(), X.astype(">i4"), X[::-1][::-1], X.astype("u1"), X.astype("u8")):
        net = net_of()
        net.train_one_batch(given if not isinstance(given, list) else np.array(given), Y)
        assert state_of(net) == wanted


def test_every_call_takes_ids():
    net = net_of()
    net.fit(X, Y, batch_size=4, epochs=2, shuffle=False, prefetch=1)
    before = net.evaluate(X, Y, batch_size=4)
    assert net.predict(X, batch_size=4).shape == (9, TIME, CLASSES)
    assert net.plan_batch(9).total_bytes > 0
    net.fit(X, Y, batch_size=9, epochs=20, verbose=False)
    assert float(net.evaluate(X, Y)[0]) < float(before[0])


@pytest.mark.peer
@pytest.mark.parametrize("name", ["plain", "momentum", "adam"])
def test_training_equals_torch(name):
    torch = skips.library("torch")
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(-1, ignore_index=0), device=device.new_cpu(), seed=7, dtype="float64")
    net.add(layers.Embedding("table", ROWS, DIM, 2, input_sample_shape=(TIME,)))
    net.add(layers.Dense("scores", CLASSES))
    net.compile(OPTIMIZERS[name]())
    table, dense = (
        torch.nn.Embedding(ROWS, DIM, 2, dtype=torch.float64),
        torch.nn.Linear(DIM, CLASSES, dtype=torch.float64),
    )
    theirs = [table.weight, dense.weight, dense.bias]
    with torch.no_grad():
        for one, value in zip(theirs, net.param_values(), strict=True):
            one.copy_(torch.from_numpy(tensor.to_numpy(value).T if one is dense.weight else tensor.to_numpy(value)))
    made = {"plain": torch.optim.SGD(theirs, 0.5), "momentum": torch.optim.SGD(theirs, 0.5, 0.9)}
    steps = made.get(name) or torch.optim.Adam(theirs, 0.01)
    for _ in range(3):
        ours = float(net.train_one_batch(X, Y)[0])
        steps.zero_grad()
        scores = dense(table(torch.from_numpy(X)))
        wanted = torch.nn.functional.cross_entropy(scores.flatten(0, 1), torch.from_numpy(Y).flatten(), ignore_index=0)
        wanted.backward()
        steps.step()
        np.testing.assert_allclose(ours, wanted.item(), rtol=1e-12)
    for one, value in zip(theirs, net.param_values(), strict=True):
        array = tensor.to_numpy(value).T if one is dense.weight else tensor.to_numpy(value)
        np.testing.assert_allclose(array, one.detach().numpy(), rtol=1e-9, atol=1e-10)


def test_no_derivative_goes_to_ids():
    net = net_of()
    net.loss.forward(True, net.forward(True, X), Y)
    with pytest.raises(GraphError, match="no derivative reaches the input of layer 'table'"):
        list(net.backward(net.loss.backward(), output=["table"]))


def test_ids_pass_layers_that_hand_them_on():
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(-1), device=device.new_cpu(), seed=7)
    ids = net.add(layers.Dummy("ids", input_sample_shape=(TIME,)))
    one = net.add(layers.Embedding("one", ROWS, DIM), ids)
    other = net.add(layers.Embedding("other", ROWS + 2, DIM), ids)
    net.add(layers.Merge("sum"), [one, other])
    net.add(layers.Dense("scores", CLASSES))
    net.compile(optimizer.SGD(0.1))
    assert net.input_ids() == {"ids": ROWS}
    net.train_one_batch(X, Y)
    with pytest.raises(ValueError, match=f"received {ROWS}"):
        net.train_one_batch(np.full_like(X, ROWS), Y)


def wrong(value: int) -> np.ndarray:
    x = X.copy()
    x[6, 3] = value
    return x


REFUSED = {
    "too large": (wrong(ROWS), ValueError, rf"'table'.*{ROWS} in sample 6, position 3"),
    "negative": (wrong(-1), ValueError, "-1 in sample 6, position 3"),
    "floats": (X.astype("f"), TypeError, "float32"),
    "fractions": (X + 0.5, TypeError, "float64"),
    "masks": (X > 3, TypeError, "bool"),
    "no time": (X[:, :0], ShapeError, r"\(5,\)"),
    "more steps": (np.tile(X, 2), ShapeError, r"\(9, 10\)"),
    "vectors": (X[..., None], ShapeError, r"\(9, 5, 1\)"),
    "a tensor": (tensor.from_numpy(wrong(40)), ValueError, "40 in sample 6, position 3"),
}


@pytest.mark.parametrize(("x", "error", "said"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("call", ["train_one_batch", "fit", "evaluate", "predict"])
def test_bad_ids_change_nothing(call, x, error, said):
    net = net_of()
    before = state_of(net)
    with pytest.raises(error, match=said):
        getattr(net, call)(*((x,) if call == "predict" else (x, Y)))
    assert state_of(net) == before


def test_a_table_behind_numbers_says_what_it_wants():
    net = FeedForwardNet(device=device.new_cpu(), seed=7)
    net.add(layers.Dense("dense", 3, input_sample_shape=(4,)))
    net.add(layers.Embedding("table", 5, 2))
    with pytest.raises(TypeError, match="float32"):
        net.forward(False, np.ones((2, 4), "f"))


# --- scores of some rows at a time --------------------------------------------------------------------------


BATCH, LENGTH, COUNT, WIDTH = 9, 37, 211, 7
TEXTS = RNG.integers(1, COUNT, (BATCH, LENGTH))
NEXT = RNG.integers(0, COUNT, (BATCH, LENGTH))
NEXT[3:5, 7:] = 0


@pytest.fixture(params=[kernels.name for kernels in kernel_sets()])
def on(request: Any) -> Iterator[Any]:
    """A device whose tiles are so small that these nets have some."""
    with tiles_of(64, request.param) as found:
        yield found


def headed(
    on: Any,
    tied: bool = True,
    criterion: Loss | None = None,
    measured: Any = None,
    features: int = WIDTH,
    **options: Any,
) -> Any:
    """Ids to scores of ids. options: of `compile`."""
    net = FeedForwardNet(criterion or loss.SoftmaxCrossEntropy(-1), measured, device=on, seed=3)
    table = net.add(
        layers.Embedding("table", COUNT, features, weight_init="glorot_uniform", input_sample_shape=(LENGTH,))
    )
    net.add(layers.Dense("hidden", features))
    net.add(layers.Activation("act", "tanh"))
    net.add(layers.TiedDense("head", table) if tied else layers.Dense("head", COUNT))
    net.compile(optimizer.AdamW(0.01, epsilon=1e-3), **options)  # by less, rounding of small gradients would move much
    return net


def values(net: Any) -> dict[str, np.ndarray]:
    return {name: tensor.to_numpy(value) for name, value in net.parameters().items()}


def run_of(net: Any, steps: int = 2) -> tuple[list[tuple[float, ...]], dict[str, np.ndarray]]:
    seen = [tuple(float(v) for v in net.train_one_batch(TEXTS, NEXT) if v is not None) for _ in range(steps)]
    return seen, values(net)


def assert_alike(net: Any, other: Any, rtol: float = 2e-4) -> None:
    """Both train alike, but for rounding."""
    (seen, moved), (wanted, held) = run_of(net), run_of(other)
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
    tiles, whole = (headed(on, tied, CRITERIA[criterion](), fuse=fuse) for fuse in (True, False))
    assert_alike(tiles, whole)
    assert kernels_of(tiles).count("softmax_cross_entropy") == 3
    assert tiles.memory_plan.gains["head"] > BATCH * LENGTH * COUNT * 2


@pytest.mark.parametrize("measured", [metric.Accuracy(-1), metric.Perplexity(-1)])
def test_metrics_are_measured_tile_by_tile(on, measured):
    tiles, whole = (headed(on, measured=measured, fuse=fuse) for fuse in (True, False))
    assert_alike(tiles, whole)
    assert tiles.memory_plan.arena_bytes < BATCH * LENGTH * COUNT * 4 < whole.memory_plan.arena_bytes
    evaluated = [net.evaluate(TEXTS, NEXT, batch_size=BATCH) for net in (tiles, whole)]
    np.testing.assert_allclose(*([float(v) for v in pair] for pair in evaluated), rtol=1e-5)


def test_an_evaluation_has_no_scores_as_a_whole(on):
    plans = [headed(on, fuse=fuse).plan_batch(BATCH).beside["evaluation"] for fuse in (True, False)]
    assert plans[0] < BATCH * LENGTH * COUNT * 4 / 2 < plans[1]


def test_scores_that_a_user_asks_for_are_there(on):
    net = headed(on)
    net.train_one_batch(TEXTS, NEXT)
    scores = net.predict(TEXTS)
    assert scores.shape == (BATCH, LENGTH, COUNT)
    table = values(net)["table/weight"]
    hidden = np.tanh(table[TEXTS] @ values(net)["hidden/weight"] + values(net)["hidden/bias"])
    np.testing.assert_allclose(scores, hidden @ table.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "others", "rtol"),
    [
        ({}, {"graph": False}, 2e-4),
        ({"micro_batches": 1}, {"micro_batches": 3}, 1e-3),
        ({"clip_global_norm": 0.02}, {"clip_global_norm": 0.02, "fuse": False}, 2e-4),
    ],
)
def test_tiles_of_rows_beside_other_options(on, options, others, rtol):
    assert_alike(headed(on, **options), headed(on, **others), rtol)


def test_within_a_budget_tiles_are_of_classes_too():
    with tiles_of(64) as on:
        with pytest.raises(BudgetError) as caught:
            headed(on, features=40).plan_batch(BATCH, memory_budget=1000)
        net, free = (headed(on, features=40, memory_budget=n) for n in (caught.value.total_bytes, None))
        assert_alike(net, free)
    assert kernels_of(net).count("softmax_classes_derivative") > 1
    assert "softmax_classes_derivative" not in kernels_of(free)
    assert net.memory_plan.arena_bytes < free.memory_plan.arena_bytes - COUNT * 40 * 4
    assert net.memory_plan.estimated_slowdown > 0
