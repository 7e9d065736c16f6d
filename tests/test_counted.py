"""Means of the positions that count: they do not depend on how a data set or a batch is cut."""

from __future__ import annotations

import copy
from math import exp
from typing import Any

import numpy as np
import pytest

from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, tensor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((9, 5, 4)).astype(np.float32)
Y = RNG.integers(0, 3, (9, 5))
Y[RNG.random((9, 5)) < 0.5] = -1
Y[2] = -1
NAMES = "loss", "accuracy", "perplexity"


def net(ignored: int | None = -1, on: Any = None, **options: Any) -> FeedForwardNet:
    criteria = {"axis": -1, "ignore_index": ignored}
    made = FeedForwardNet(
        loss.SoftmaxCrossEntropy(**criteria), [metric.Accuracy(**criteria), metric.Perplexity(**criteria)],
        device=on or device.new_cpu(), seed=1,
    )  # fmt: skip
    made.add(layers.Dense("d", 3, input_sample_shape=(5, 4)))
    made.compile(options.pop("optimizer", optimizer.SGD(0.1, momentum=0.9)), **options)
    return made


def weights(made: FeedForwardNet) -> np.ndarray:
    return np.concatenate([tensor.to_numpy(value).ravel() for value in made.param_values()])


def values(given: Any) -> list[float]:
    return [float(given[0]), *(float(given[1][name]) for name in NAMES[1:])]


@pytest.mark.parametrize("graph", [True, False])
def test_an_evaluation_is_that_of_one_batch_whatever_the_batch_size(graph):
    made = net(graph=graph)
    wanted = values(made.evaluate(X, Y, batch_size=9))
    assert exp(wanted[0]) == pytest.approx(wanted[2], rel=1e-6)
    for size in (4, 2, 1):
        np.testing.assert_allclose(values(made.evaluate(X, Y, batch_size=size)), wanted, rtol=1e-6)
    weighed = [made.evaluate(X, Y, batch_size=size, sample_weight=np.arange(9.0))[0] for size in (9, 4, 1)]
    np.testing.assert_allclose(weighed, weighed[0], rtol=1e-6)
    assert made.evaluate(X[2:3], Y[2:3])[0] == 0  # none counts


def test_the_history_and_validation_count_positions():
    made = net()
    made.optimizer.lr = 0.0
    wanted = values(made.evaluate(X, Y, batch_size=9))
    found = made.fit(X, Y, batch_size=4, epochs=1, validation_data=(X, Y), verbose=False)
    for before in ("", "val_"):
        np.testing.assert_allclose([found[before + name][0] for name in NAMES], wanted, rtol=1e-6)


def test_each_of_several_outputs_counts_its_own():
    a, b = (loss.SoftmaxCrossEntropy(-1, ignore_index=ignored) for ignored in (-1, 0))
    losses = {"a": a, "b": b, "c": loss.SquaredError()}
    made = FeedForwardNet(losses, device=device.new_cpu(), seed=1)
    made.add(layers.Dummy("x", (5, 4)), [])
    for name in "abc":
        made.add(layers.Dense(name, 3), "x")
    made.compile(optimizer.SGD(0.1), loss_weights={"a": 0.25})
    y = {"a": Y, "b": np.maximum(Y, 0), "c": X[..., :3]}
    found = [float(made.evaluate(X, y, batch_size=size)[0]) for size in (9, 4, 1)]
    np.testing.assert_allclose(found, found[0], rtol=1e-6)
    other = copy.deepcopy(made)
    other.compile(optimizer.SGD(0.1), loss_weights={"a": 0.25}, micro_batches=4)
    losses = [[float(one.train_one_batch(X, y)[0]) for _ in range(2)] for one in (made, other)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
    np.testing.assert_allclose(weights(other), weights(made), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("ignored", [-1, None])
def test_pieces_of_a_batch_are_the_batch(graph, ignored):
    found = []
    for pieces in (1, 4):
        made = net(ignored, graph=graph, micro_batches=pieces)
        y = Y if ignored is not None else np.maximum(Y, 0)
        steps = [values(made.train_one_batch(X, y)) for _ in range(2)]
        found.append((steps, weights(made)))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=2e-6)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clip_global_norm": 0.05},
        {"micro_batches": 2},
        {"optimizer": optimizer.Adam},
        {"loss_scale": 8.0, "micro_batches": 2},
    ],
    ids=str,
)
def test_a_group_of_batches_is_one_batch_of_all(graph, options):
    found = []
    for cuts in ([(0, 9)], [(0, 2), (2, 3), (3, 9)]):
        own = {**options, "optimizer": options["optimizer"](0.1)} if "optimizer" in options else options
        made = net(graph=graph, accumulate=len(cuts), **own)
        for _ in range(2):
            for start, stop in cuts:
                made.train_one_batch(X[start:stop], Y[start:stop])
        found.append(weights(made))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_a_group_goes_on_from_a_snapshot(tmp_path):
    found = []
    for saves in (False, True):
        made = net(accumulate=3)
        for number, (start, stop) in enumerate([(0, 2), (3, 5), (5, 9)]):
            if saves and number == 2:
                made.save(tmp_path / "net.h5")
                made = net(accumulate=3)
                made.load(tmp_path / "net.h5")
            made.train_one_batch(X[start:stop], Y[start:stop])
        found.append(weights(made))
    np.testing.assert_array_equal(found[1], found[0])
    whole = net()
    whole.train_one_batch(np.delete(X, 2, 0), np.delete(Y, 2, 0))
    np.testing.assert_allclose(found[0], weights(whole), rtol=1e-5, atol=1e-7)


def test_a_step_that_fails_counts_no_positions():
    made, wanted = net(accumulate=2), net(accumulate=2)
    made.train_one_batch(X[:4], Y[:4])
    with pytest.raises(ValueError, match="class ids"):
        made.train_one_batch(X[4:], Y[4:] + 7)
    made.train_one_batch(X[4:], Y[4:])
    for part in (slice(0, 4), slice(4, 9)):
        wanted.train_one_batch(X[part], Y[part])
    np.testing.assert_array_equal(weights(made), weights(wanted))
