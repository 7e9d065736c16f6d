"""Weights by position, of classes there, and of yes: by PyTorch's losses, in every mode, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skips
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, tensor
from singa_lite.errors import ShapeError

RNG = np.random.default_rng(5)
N, T, C = 6, 5, 3
X = RNG.standard_normal((N, T, 4)).astype(np.float32)
IDS = RNG.integers(0, C, (N, T))
W = RNG.uniform(0, 2, (N, T)).astype(np.float32)
W[RNG.random((N, T)) < 0.3] = 0
NAN = float("nan")


@pytest.fixture(scope="module")
def torch() -> Any:
    return skips.library("torch")


def net(criterion: Any, **options: Any) -> FeedForwardNet:
    made = FeedForwardNet(criterion, device=device.new_cpu(), seed=1)
    made.add(layers.Dense("d", C, input_sample_shape=(T, 4)))
    made.compile(optimizer.SGD(0.1), **options)
    return made


def of(criterion: Any, x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Its mean, and the derivative by x."""
    value = criterion.evaluate(True, tensor.from_numpy(x), y, tensor.from_numpy(weights.astype(x.dtype)))
    return float(value), tensor.to_numpy(criterion.backward())


# What is made of scores and targets (n, t, c) in float64: our loss, and PyTorch's of each position.
SEQUENCES: dict[str, tuple[Any, Any]] = {
    "SquaredError": (loss.SquaredError, lambda t, x, y: ((x - y) ** 2 / 2).mean(-1)),
    "MeanAbsoluteError": (loss.MeanAbsoluteError, lambda t, x, y: (x - y).abs().mean(-1)),
    "Huber": (lambda: loss.Huber(0.5), lambda t, x, y: t.huber_loss(x, y, delta=0.5, reduction="none").mean(-1)),
    "SigmoidCrossEntropy": (
        loss.SigmoidCrossEntropy,
        lambda t, x, y: t.binary_cross_entropy_with_logits(x, y, reduction="none").mean(-1),
    ),
    "CosineSimilarity": (loss.CosineSimilarity, lambda t, x, y: -t.cosine_similarity(x, y, -1)),
    "SoftmaxCrossEntropy": (
        lambda: loss.SoftmaxCrossEntropy(-1, label_smoothing=0.1),
        lambda t, x, y: t.cross_entropy(
            x.movedim(-1, 1), (y / y.sum(-1, True)).movedim(-1, 1), reduction="none", label_smoothing=0.1
        ),
    ),
}


@pytest.mark.peer
@pytest.mark.parametrize("name", SEQUENCES)
def test_weights_of_sequences_are_those_of_pytorchs_losses(torch, name):
    ours, theirs = SEQUENCES[name]
    x, y = RNG.standard_normal((N, T, C)), RNG.uniform(0.1, 0.9, (N, T, C))
    scores = torch.tensor(x, requires_grad=True)
    wanted = (theirs(torch.nn.functional, scores, torch.tensor(y)) * torch.tensor(W)).mean()
    wanted.backward()
    value, derivative = of(ours(), x, y, W)
    assert value == pytest.approx(wanted.item(), rel=1e-6)
    np.testing.assert_allclose(derivative, scores.grad.numpy(), rtol=1e-6, atol=1e-12)
    worse, ignored = x.copy(), y.copy()
    worse[W == 0] = NAN
    if name not in ("SigmoidCrossEntropy", "SoftmaxCrossEntropy"):  # which refuse targets of NaN
        ignored[W == 0] = NAN
    value, found = of(ours(), worse, ignored, W)
    assert value == pytest.approx(wanted.item(), rel=1e-6)
    np.testing.assert_allclose(found, derivative, rtol=1e-9, atol=1e-15)


@pytest.mark.peer
@pytest.mark.parametrize("ignored", [None, 1])
def test_weights_of_images_and_ids(torch, ignored):
    x, ids, w = RNG.standard_normal((2, C, 4, 5)), RNG.integers(0, C, (2, 4, 5)), RNG.uniform(0, 2, (2, 4, 5))
    scores = torch.tensor(x, requires_grad=True)
    values = torch.nn.functional.cross_entropy(
        scores, torch.tensor(ids), reduction="none", ignore_index=-1 if ignored is None else ignored
    )
    counted = ids.size if ignored is None else (ids != ignored).sum()
    wanted = (values * torch.tensor(w)).sum() / counted
    wanted.backward()
    value, derivative = of(loss.SoftmaxCrossEntropy(1, ignore_index=ignored), x, ids, w)
    assert value == pytest.approx(wanted.item(), rel=1e-6)
    np.testing.assert_allclose(derivative, scores.grad.numpy(), rtol=1e-6, atol=1e-12)
    value, _ = of(loss.SquaredError(), x, np.zeros_like(x), w)
    assert value == pytest.approx((x**2 / 2 * w[:, None]).mean())
    each = RNG.uniform(0, 2, x.shape)
    value, _ = of(loss.SigmoidCrossEntropy(), x, np.ones_like(x), each)
    assert value == pytest.approx((np.log1p(np.exp(-x)) * each).mean())


def test_evaluation_weighs_positions_and_classes():
    made = net("softmax_cross_entropy")
    made.loss.axis = -1
    made.fit(X, IDS, 4, 2, sample_weight=W, class_weight={1: 3.0}, validation_data=(X, IDS, W), verbose=False)
    losses = [made.evaluate(X, IDS, size, sample_weight=W, class_weight={1: 3.0})[0] for size in (6, 4, 1)]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-6)
    scores = np.asarray(made.predict(X)).astype(np.float64)
    logs = np.log(np.exp(scores).sum(-1)) - np.take_along_axis(scores, IDS[..., None], -1)[..., 0]
    assert losses[0] == pytest.approx((logs * W * np.where(IDS == 1, 3, 1)).mean(), rel=1e-5)
    rows = np.eye(C, dtype=np.float32)[IDS]
    assert made.evaluate(X, rows, sample_weight=W, class_weight={1: 3.0})[0] == pytest.approx(losses[0], rel=1e-6)
    in_batches = made.evaluate(iter([(X[:4], IDS[:4], W[:4]), (X[4:], IDS[4:], W[4:])]))[0]
    assert in_batches == pytest.approx(made.evaluate(X, IDS, sample_weight=W)[0], rel=1e-6)


def test_a_weight_of_zero_leaves_nan_out():
    y = X[..., :C].copy()
    y[W == 0] = NAN
    found = []
    for target in (y, np.nan_to_num(y)):
        made = net(loss.SquaredError())
        if target is y:
            with pytest.warns(RuntimeWarning, match="NaN"):
                made.train_one_batch(X, target, W)
        else:
            made.train_one_batch(X, target, W)
        found.append(np.asarray(made.parameters()["d/weight"]))
    np.testing.assert_array_equal(found[0], found[1])
    w = np.array([1.0, 0, 2, 1, 1, 1])
    samples = y.copy()
    samples[:] = 1
    samples[1] = NAN
    with pytest.warns(RuntimeWarning, match="NaN"):
        value = net(loss.SquaredError()).evaluate(X, samples, sample_weight=w)[0]
    assert value == net(loss.SquaredError()).evaluate(X, np.nan_to_num(samples), sample_weight=w)[0]


def test_classes_of_positions_with_one_score_are_no_and_yes():
    made = FeedForwardNet(loss.SigmoidCrossEntropy(), metric.BinaryRecall(), device=device.new_cpu(), seed=1)
    made.add(layers.Conv2D("c", 1, 3, input_sample_shape=(2, 4, 5)))
    x, y = RNG.standard_normal((3, 2, 4, 5)).astype(np.float32), RNG.integers(0, 2, (3, 1, 4, 5)).astype(np.float32)
    made.compile(optimizer.SGD(0.1))
    scores = np.asarray(made.predict(x)).astype(np.float64)
    values = np.log1p(np.exp(-scores)) + (1 - y) * scores
    w = RNG.uniform(0, 2, (3, 4, 5))
    wanted = (values * np.where(y == 1, 5, 1) * w[:, None]).mean()
    assert made.evaluate(x, y, sample_weight=w, class_weight={1: 5})[0] == pytest.approx(wanted, rel=1e-5)
    alone = made.evaluate(x, y, sample_weight=w[:, 0, 0], class_weight={1: 5})[0]
    assert alone == pytest.approx((values * np.where(y == 1, 5, 1) * w[:, :1, :1, None]).mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("criterion", "y", "weights", "words"),
    [
        (loss.SquaredError(), X[..., :C], W[:, :4], r"\(6, 4\)"),
        (loss.SquaredError(), X[..., :C], W[:5], "6 samples"),
        (loss.CosineSimilarity(), X[..., :C], np.ones((N, T, C)), r"\(6, 5, 3\)"),
        (loss.SoftmaxCrossEntropy(-1), IDS, W[..., None], r"\(6, 5, 1\)"),
        (loss.SoftmaxCrossEntropy(-1), IDS, np.ones((N, C)), r"\(6, 3\)"),
    ],
)
@pytest.mark.parametrize("call", ["fit", "train_one_batch", "evaluate"])
def test_weights_that_fit_no_positions_are_refused(call, criterion, y, weights, words):
    made = net(criterion)
    with pytest.raises(ShapeError, match=rf"{call} sample_weight.*{words}"):
        getattr(made, call)(X, y, sample_weight=weights)
    assert made.optimizer.step == 0


# ---- of yes


@pytest.mark.peer
@pytest.mark.parametrize(
    ("shape", "weight"),
    [
        ((7, 3), [0.5, 2, 4]),
        ((7, 3), 3.0),
        ((4, 5, 3), [0.5, 2, 0]),
        ((2, 3, 4, 5), np.array([1.0, 2, 3])[:, None, None]),
        ((7,), 2),
    ],
)
def test_the_weight_of_yes_is_pytorchs(torch, shape, weight):
    x, y = 3 * RNG.standard_normal(shape), RNG.uniform(0, 1, shape)
    x.flat[0], y.flat[0] = 800, 0
    scores = torch.tensor(x, requires_grad=True)
    theirs = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(np.asarray(weight, np.float64)))
    wanted = theirs(scores, torch.tensor(y))
    wanted.backward()
    ours = loss.SigmoidCrossEntropy(pos_weight=weight)
    assert float(ours.evaluate(True, tensor.from_numpy(x), y)) == pytest.approx(wanted.item(), rel=1e-6)
    np.testing.assert_allclose(tensor.to_numpy(ours.backward()), scores.grad.numpy(), rtol=1e-6, atol=1e-12)
    if len(shape) > 2:
        axis = 1 if len(shape) == 4 else -1
        w = RNG.uniform(0, 2, tuple(np.delete(shape, axis)))
        own = torch.nn.BCEWithLogitsLoss(torch.tensor(np.expand_dims(w, axis)), pos_weight=theirs.pos_weight)
        assert of(ours, x, y, w)[0] == pytest.approx(own(scores, torch.tensor(y)).item(), rel=1e-6)


def test_the_weight_of_yes_in_a_net():
    y = (X[..., :C] > 0).astype(np.float32)
    made = net(loss.SigmoidCrossEntropy(pos_weight=np.array([1.0, 2, 3])))
    assert made.config()["loss"] == net(loss.SigmoidCrossEntropy(np.array([1.0, 2, 3]))).config()["loss"]
    made.loss.pos_weight = 1.0
    assert made.evaluate(X, y)[0] == pytest.approx(net_of(made, X, y), rel=1e-6)
    for wrong in ([1, 2], np.ones((2, 3)), np.ones((1, 1, 3))):
        with pytest.raises(ShapeError, match="pos_weight"):
            net(loss.SigmoidCrossEntropy(wrong)).evaluate(X, y)


def net_of(made: FeedForwardNet, x: np.ndarray, y: np.ndarray) -> float:
    return float(loss.SigmoidCrossEntropy().evaluate(False, made.predict(x), y))


@pytest.mark.parametrize("wrong", [-1.0, NAN, [1, float("inf")], "much", [[1], [2, 3]]])
def test_weights_of_yes_that_are_refused(wrong):
    with pytest.raises((TypeError, ValueError), match="SigmoidCrossEntropy pos_weight"):
        loss.SigmoidCrossEntropy(wrong)
