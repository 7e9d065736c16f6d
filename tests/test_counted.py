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


def momentum() -> optimizer.Optimizer:
    return optimizer.SGD(0.1, momentum=0.9)


def net(ignored: int | None = -1, rule: Any = momentum, **options: Any) -> FeedForwardNet:
    criteria = {"axis": -1, "ignore_index": ignored}
    made = FeedForwardNet(
        loss.SoftmaxCrossEntropy(**criteria), [metric.Accuracy(**criteria), metric.Perplexity(**criteria)],
        device=device.new_cpu(), seed=1,
    )  # fmt: skip
    made.add(layers.Dense("d", 3, input_sample_shape=(5, 4)))
    made.compile(rule(), **options)
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
    made.optimizer.lr = 0.0
    history = made.fit(X, Y, batch_size=4, epochs=1, validation_data=(X, Y), verbose=False)
    for before in ("", "val_"):
        np.testing.assert_allclose([history[before + name][0] for name in NAMES], wanted, rtol=1e-6)


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


GROUPS = [(0, 2), (2, 3), (3, 9)]
#: (options of both nets, options of the one that takes the data in cuts, cuts): the same training as one batch of all.
ALIKE: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[int, int]]]] = {
    "pieces": ({}, {"micro_batches": 4}, [(0, 9)]),
    "pieces, none ignored": ({"ignored": None}, {"micro_batches": 4}, [(0, 9)]),
    "group": ({}, {"accumulate": 3}, GROUPS),
    "group, clipped": ({"clip_global_norm": 0.05}, {"accumulate": 3}, GROUPS),
    "group of pieces": ({}, {"accumulate": 3, "micro_batches": 2, "loss_scale": 8.0}, GROUPS),
    "group, adam": ({"rule": lambda: optimizer.Adam(0.1)}, {"accumulate": 3}, GROUPS),
}


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize(("both", "options", "cuts"), ALIKE.values(), ids=ALIKE)
def test_pieces_of_a_batch_and_groups_of_batches_are_the_batch(graph, both, options, cuts):
    whole, cut = net(graph=graph, **both), net(graph=graph, **both, **options)
    y = np.maximum(Y, 0) if "ignored" in both else Y
    for _ in range(2):
        wanted = values(whole.train_one_batch(X, y))
        found = [values(cut.train_one_batch(X[start:stop], y[start:stop])) for start, stop in cuts]
        if len(cuts) == 1:
            np.testing.assert_allclose(found[0], wanted, rtol=2e-6)
    np.testing.assert_allclose(weights(cut), weights(whole), rtol=1e-5, atol=1e-6)


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
    for one in (made, wanted):
        one.train_one_batch(X[:4], Y[:4])
    with pytest.raises(ValueError, match="class ids"):
        made.train_one_batch(X[4:], Y[4:] + 7)
    for one in (made, wanted):
        one.train_one_batch(X[4:], Y[4:])
    np.testing.assert_array_equal(weights(made), weights(wanted))
