"""Weights of samples, positions, classes, losses and of yes: PyTorch's numbers, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skips
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, tensor
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


N, T, C = 6, 5, 3
SERIES = RNG.standard_normal((N, T, 4)).astype(np.float32)
CLASS_IDS = RNG.integers(0, C, (N, T))
EACH = RNG.uniform(0, 2, (N, T)).astype(np.float32)
EACH[RNG.random((N, T)) < 0.3] = 0
NAN = float("nan")


def of_series(criterion: Any, **options: Any) -> FeedForwardNet:
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
def test_weights_of_sequences_are_those_of_pytorchs_losses(name):
    torch = skips.library("torch")
    ours, theirs = SEQUENCES[name]
    x, y = RNG.standard_normal((N, T, C)), RNG.uniform(0.1, 0.9, (N, T, C))
    scores = torch.tensor(x, requires_grad=True)
    wanted = (theirs(torch.nn.functional, scores, torch.tensor(y)) * torch.tensor(EACH)).mean()
    wanted.backward()
    value, derivative = of(ours(), x, y, EACH)
    assert value == pytest.approx(wanted.item(), rel=1e-6)
    np.testing.assert_allclose(derivative, scores.grad.numpy(), rtol=1e-6, atol=1e-12)
    worse, ignored = x.copy(), y.copy()
    worse[EACH == 0] = NAN
    if name not in ("SigmoidCrossEntropy", "SoftmaxCrossEntropy"):  # which refuse targets of NaN
        ignored[EACH == 0] = NAN
    value, found = of(ours(), worse, ignored, EACH)
    assert value == pytest.approx(wanted.item(), rel=1e-6)
    np.testing.assert_allclose(found, derivative, rtol=1e-9, atol=1e-15)


@pytest.mark.peer
@pytest.mark.parametrize("ignored", [None, 1])
def test_weights_of_images_and_ids(ignored):
    torch = skips.library("torch")
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
    made = of_series("softmax_cross_entropy")
    made.loss.axis = -1
    made.fit(
        SERIES,
        CLASS_IDS,
        4,
        2,
        sample_weight=EACH,
        class_weight={1: 3.0},
        validation_data=(SERIES, CLASS_IDS, EACH),
        verbose=False,
    )
    losses = [
        made.evaluate(SERIES, CLASS_IDS, size, sample_weight=EACH, class_weight={1: 3.0})[0] for size in (6, 4, 1)
    ]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-6)
    scores = np.asarray(made.predict(SERIES)).astype(np.float64)
    logs = np.log(np.exp(scores).sum(-1)) - np.take_along_axis(scores, CLASS_IDS[..., None], -1)[..., 0]
    assert losses[0] == pytest.approx((logs * EACH * np.where(CLASS_IDS == 1, 3, 1)).mean(), rel=1e-5)
    rows = np.eye(C, dtype=np.float32)[CLASS_IDS]
    assert made.evaluate(SERIES, rows, sample_weight=EACH, class_weight={1: 3.0})[0] == pytest.approx(
        losses[0], rel=1e-6
    )
    in_batches = made.evaluate(iter([(SERIES[:4], CLASS_IDS[:4], EACH[:4]), (SERIES[4:], CLASS_IDS[4:], EACH[4:])]))[0]
    assert in_batches == pytest.approx(made.evaluate(SERIES, CLASS_IDS, sample_weight=EACH)[0], rel=1e-6)


def test_a_weight_of_zero_leaves_nan_out():
    y = SERIES[..., :C].copy()
    y[EACH == 0] = NAN
    found = []
    for target in (y, np.nan_to_num(y)):
        made = of_series(loss.SquaredError())
        if target is y:
            with pytest.warns(RuntimeWarning, match="NaN"):
                made.train_one_batch(SERIES, target, EACH)
        else:
            made.train_one_batch(SERIES, target, EACH)
        found.append(np.asarray(made.parameters()["d/weight"]))
    np.testing.assert_array_equal(found[0], found[1])


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
def test_the_weight_of_yes_is_pytorchs(shape, weight):
    torch = skips.library("torch")
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
    y = (SERIES[..., :C] > 0).astype(np.float32)
    made = of_series(loss.SigmoidCrossEntropy(pos_weight=np.array([1.0, 2, 3])))
    assert made.config()["loss"] == of_series(loss.SigmoidCrossEntropy(np.array([1.0, 2, 3]))).config()["loss"]
    made.loss.pos_weight = 1.0
    wanted = float(loss.SigmoidCrossEntropy().evaluate(False, made.predict(SERIES), y))
    assert made.evaluate(SERIES, y)[0] == pytest.approx(wanted, rel=1e-6)
    for wrong in ([1, 2], np.ones((2, 3)), np.ones((1, 1, 3))):
        with pytest.raises(ShapeError, match="pos_weight"):
            of_series(loss.SigmoidCrossEntropy(wrong)).evaluate(SERIES, y)


@pytest.mark.parametrize("wrong", [-1.0, NAN, [1, float("inf")], "much", [[1], [2, 3]]])
def test_weights_of_yes_that_are_refused(wrong):
    with pytest.raises((TypeError, ValueError), match="SigmoidCrossEntropy pos_weight"):
        loss.SigmoidCrossEntropy(wrong)


# ---- what is refused

ROWS = np.linspace(-1, 1, 33, dtype="f").reshape(11, 3)
REFUSED = [
    # of sequences
    (SERIES[..., :C], {"sample_weight": EACH[:, :4]}, ShapeError, r"sample_weight.*\(6, 4\)"),
    (SERIES[..., :C], {"sample_weight": EACH[:5]}, ShapeError, "sample_weight.*6 samples"),
    (SERIES[..., :C], {"sample_weight": EACH[..., None]}, ShapeError, r"sample_weight.*\(6, 5, 1\)"),
    # of vectors
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
    net, x = made(), SERIES if y.ndim == 3 else X
    if y is not IDS:
        net = FeedForwardNet(loss.SquaredError(), seed=1)
        net.add(layers.Dense("d", y.shape[-1], input_sample_shape=x.shape[1:]))
        net.compile(optimizer.SGD(0.1))
    with pytest.raises(error, match=f"{call}.*{culprit}"):
        getattr(net, call)(x, y.astype("f") if y is not IDS else y, **options)
    assert net.optimizer.step == 0


def test_classes_that_are_ignored_have_no_weight():
    nets, y = [], np.where(np.arange(11) % 4 == 1, -1, IDS)
    for classes in (None, {0: 3.0}):
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(ignore_index=-1), seed=1)
        net.add(layers.Dense("d", 3, input_sample_shape=X.shape[1:]))
        nets.append(net.evaluate_one_batch(X, y, class_weight=classes)[0])
    assert np.isfinite(float(nets[1])) and float(nets[1]) > float(nets[0])
