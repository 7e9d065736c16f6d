"""Weights of samples, of classes and of losses: the formula, every mode, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import skips
from singa_lite import FeedForwardNet, layers, loss, optimizer
from singa_lite.errors import GraphError, ShapeError

RNG = np.random.default_rng(1)
X = RNG.normal(0, 1, (11, 5)).astype(np.float32)
IDS = RNG.integers(0, 3, 11)
W = RNG.uniform(0, 3, 11)
CLASSES = {0: 2.0, 2: 0.25}


def made(loss="softmax_cross_entropy", **options) -> FeedForwardNet:
    net = FeedForwardNet(loss, "accuracy", seed=2)
    net.add(layers.Dense("hidden", 6, input_sample_shape=(5,)))
    net.add(layers.Activation("bend", "tanh"))
    net.add(layers.Dense("scores", 3))
    net.compile(optimizer.SGD(0.3), **options)
    return net


def values(net):
    return {name: np.asarray(value) for name, value in net.parameters().items()}


@pytest.mark.peer
def test_a_weighted_step_is_torchs():
    torch = skips.library("torch")
    net = made()
    weights = {name: torch.tensor(value.astype(np.float64), requires_grad=True) for name, value in values(net).items()}
    hidden = torch.tanh(torch.tensor(X, dtype=torch.float64) @ weights["hidden/weight"] + weights["hidden/bias"])
    scores = hidden @ weights["scores/weight"] + weights["scores/bias"]
    losses = torch.nn.functional.cross_entropy(scores, torch.tensor(IDS), reduction="none")
    own = W * np.array([CLASSES.get(each, 1.0) for each in IDS])
    wanted = (losses * torch.tensor(own)).sum() / 11
    wanted.backward()
    loss, _ = net.train_one_batch(X, IDS, W, CLASSES)
    assert float(loss) == pytest.approx(float(wanted.detach()), rel=1e-5)
    for name, value in values(net).items():
        np.testing.assert_allclose(value, (weights[name] - 0.3 * weights[name].grad).detach(), rtol=2e-5, atol=1e-6)


def test_a_weight_of_two_counts_as_two_equal_samples():
    once, twice = made(), made()
    weights = np.ones(11)
    weights[3] = 2
    once.train_one_batch(X, IDS, weights)
    twice.optimizer.lr = 0.3 * 12 / 11  # the mean is over 12 samples there
    twice.train_one_batch(np.concatenate([X, X[3:4]]), np.append(IDS, IDS[3]))
    for name, value in values(once).items():
        np.testing.assert_allclose(value, values(twice)[name], rtol=1e-5, atol=1e-6)


def test_evaluate_weighs_whatever_the_batches():
    net = made()
    net.fit(X, IDS, 4, 1, sample_weight=W, class_weight=CLASSES, validation_data=(X, IDS, W), verbose=False)
    whole = net.evaluate(X, IDS, 11, sample_weight=W)[0]
    assert net.evaluate(X, IDS, 4, sample_weight=W)[0] == pytest.approx(whole)
    plain = [net.evaluate(X[i : i + 1], IDS[i : i + 1])[0] for i in range(11)]
    assert whole == pytest.approx((W * plain).sum() / 11, rel=1e-5)


def two(**options) -> FeedForwardNet:
    net = FeedForwardNet({"a": "mse", "b": "softmax_cross_entropy"}, seed=1)
    start = net.add(layers.Dense("start", 4, input_sample_shape=(5,)))
    net.add(layers.Dense("a", 2), start)
    net.add(layers.Dense("b", 3), start)
    net.compile(optimizer.SGD(0.1), **options)
    return net


def test_losses_of_outputs_have_weights():
    y = {"a": X[:, :2], "b": IDS}
    parts = [two(loss_weights={"a": a, "b": b}).evaluate(X, y)[0] for a, b in ((1, 0), (0, 1))]
    net = two(loss_weights={"b": 0.25})
    assert net.evaluate(X, y)[0] == pytest.approx(parts[0] + 0.25 * parts[1], rel=1e-6)
    by_weights = two()
    net.train_one_batch(X, y)
    by_weights.train_one_batch(X, y, {"b": np.full(11, 0.25)})
    for name, value in values(net).items():
        np.testing.assert_allclose(values(by_weights)[name], value, rtol=1e-5, atol=1e-6)
    with pytest.raises(GraphError, match="loss_weights"):
        two(loss_weights={"c": 1})
    with pytest.raises(ValueError, match="loss_weights of output 'a'"):
        two(loss_weights={"a": -1})


ROWS = np.linspace(-1, 1, 33, dtype="f").reshape(11, 3)
REFUSED = [
    (IDS, {"sample_weight": W[:5]}, ShapeError, r"sample_weight.*\(5,\)"),
    (IDS, {"sample_weight": -W}, ValueError, "sample_weight"),
    (IDS, {"sample_weight": np.full(11, np.nan)}, ValueError, "sample_weight.*nan"),
    (IDS, {"sample_weight": {"c": W}}, GraphError, "sample_weight.*'c'"),
    (IDS, {"class_weight": "balanced"}, TypeError, "class_weight.*'balanced'"),
    (IDS, {"class_weight": {0: -1}}, ValueError, "class_weight.*-1"),
    (IDS, {"class_weight": {0.5: 1}}, TypeError, "class_weight.*0.5"),
    (IDS, {"class_weight": {9: 2}}, ValueError, "class_weight.*class 9"),
    (IDS, {"class_weight": [1] * 9}, ValueError, "class_weight"),
    (IDS, {"class_weight": {-1: 2}}, ValueError, "class_weight.*class -1"),
    (IDS, {"class_weight": {"0": 1}}, TypeError, "class_weight.*'0'"),
    (IDS, {"class_weight": {"c": {0: 1}}}, GraphError, "class_weight.*'c'"),
    (ROWS, {"class_weight": {0: 2}}, TypeError, "class_weight"),  # whose rows are no classes
    (np.abs(ROWS) * 0 + 0.9, {"class_weight": {0: 2}}, TypeError, "class_weight"),
    *(
        (np.where(np.arange(11) == 4, n, 1)[:, None], {"class_weight": {0: 2}}, TypeError, f"{n}")
        for n in (0.5, -3, 57)
    ),
]


@pytest.mark.parametrize(("y", "options", "error", "culprit"), REFUSED)
@pytest.mark.parametrize("call", ["fit", "train_one_batch", "evaluate"])
def test_weights_that_are_refused(call, y, options, error, culprit):
    net = made()
    if y is not IDS:
        net = FeedForwardNet(loss.SquaredError(), seed=1)
        net.add(layers.Dense("d", y.shape[1], input_sample_shape=X.shape[1:]))
        net.compile(optimizer.SGD(0.1))
    with pytest.raises(error, match=f"{call}.*{culprit}"):
        getattr(net, call)(X, y.astype("f") if y is not IDS else y, **options)
    assert net.optimizer.step == 0


def test_classes_that_are_ignored_have_no_weight():
    nets, y = [], np.where(np.arange(11) % 4 == 1, -1, IDS)
    for classes in (None, {0: 3.0}):
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(ignore_index=-1), seed=1)
        net.add(layers.Dense("d", 3, input_sample_shape=X.shape[1:]))
        nets.append(net.evaluate_one_batch(X, y, class_weight=classes)[0])
    assert np.isfinite(float(nets[1])) and float(nets[1]) > float(nets[0])
