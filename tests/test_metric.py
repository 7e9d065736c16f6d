"""Metrics on scores whose order can be read off."""

from __future__ import annotations

import numpy as np
import pytest

from nets import state_of
from singa_lite import FeedForwardNet, ShapeError, autograd, device, layers, loss, metric, optimizer, tensor
from singa_lite.tensor import Tensor

NAN = float("nan")
SCORES = np.array(
    [
        [0.1, 0.7, 0.2, 0.0],  # order 1 2 0 3
        [0.4, 0.4, 0.1, 0.4],  # a tie: 0 1 3 2
        [-5.0, -4.0, -3.0, -2.0],  # order 3 2 1 0
    ]
)


def values(made: metric.Metric, x: np.ndarray, y: object, dtype: type = np.float64) -> list[float]:
    found = made.forward(tensor.from_numpy(x.astype(dtype)), y)
    assert found.dtype == dtype
    return tensor.to_numpy(found).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("ids", "wanted"),
    [([1, 0, 3], [1, 1, 1]), ([2, 1, 0], [0, 0, 0]), ([1, 3, 2], [1, 0, 0])],
    ids=["right", "wrong", "ties go to the lowest class"],
)
def test_accuracy(ids, wanted, dtype):
    assert values(metric.Accuracy(), SCORES, np.array(ids), dtype) == wanted
    assert values(metric.Accuracy(), SCORES, np.eye(4)[ids], dtype) == wanted
    assert values(metric.Accuracy(), SCORES, tensor.from_numpy(np.array(ids, np.int32)), dtype) == wanted


def test_rows_of_regression_targets_name_their_largest_class():
    rows = np.where(np.eye(4)[[1, 1, 3]] > 0, 1.0, -1.0)
    assert values(metric.Accuracy(), SCORES, rows) == [1, 0, 1]


@pytest.mark.parametrize(
    ("k", "ids", "wanted"),
    [
        (1, [1, 0, 3], [1, 1, 1]),
        (2, [2, 1, 1], [1, 1, 0]),
        (2, [0, 3, 2], [0, 0, 1]),
        (3, [0, 2, 1], [1, 0, 1]),
    ],
)
def test_top_k_accuracy(k, ids, wanted):
    assert values(metric.TopKAccuracy(k), SCORES, np.array(ids)) == wanted


def test_top_k_is_5_by_default():
    x = -np.arange(7.0)[np.newaxis].repeat(2, axis=0)
    assert values(metric.TopKAccuracy(), x, np.array([4, 5])) == [1, 0]


LABELS = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("k", "precision", "recall"),
    [(1, [1, 0, 0], [0.5, 0, 0]), (2, [0.5, 0, 0], [0.5, 0, 0]), (3, [2 / 3, 1 / 3, 0], [1, 0.5, 0])],
)
def test_precision_and_recall(k, precision, recall):
    for dtype in (np.int64, np.float32, bool):
        assert values(metric.Precision(k), SCORES, LABELS.astype(dtype)) == pytest.approx(precision, rel=1e-15)
        assert values(metric.Recall(k), SCORES, LABELS.astype(dtype)) == pytest.approx(recall, rel=1e-15)


def test_positions_of_a_sample_are_averaged():
    x = np.moveaxis(SCORES[[0, 1, 2, 0, 0, 2]].reshape(2, 3, 4), 2, 1)  # (n, classes, positions)
    assert values(metric.Accuracy(), x, np.array([[1, 0, 0], [1, 2, 3]])) == pytest.approx([2 / 3, 2 / 3])
    labels = np.zeros((2, 4, 3))
    labels[0, 1, 0] = labels[0, 0, 1] = labels[1, 2, 2] = 1
    assert values(metric.Precision(2), x, labels) == pytest.approx([1 / 3, 1 / 6])
    assert values(metric.Recall(2), x, labels) == pytest.approx([2 / 3, 1 / 3])


def test_evaluate_is_the_mean():
    mean = metric.Accuracy().evaluate(tensor.from_numpy(SCORES), np.array([1, 0, 0]))
    assert mean.shape == ()
    assert float(mean) == pytest.approx(2 / 3)


def test_scores_on_a_tape_give_values_that_are_on_none():
    x = tensor.from_numpy(SCORES)
    x.stores_grad = True
    made = metric.Accuracy().evaluate(x, np.array([1, 0, 3]))
    assert made.creator is None
    assert not made.requires_grad


class Bias(metric.Metric):
    """A metric of a user's own: by how much a sample's scores are above its target, on average."""

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return autograd.reduce_mean(x - target, 1)


def test_a_metric_of_ones_own():
    assert values(Bias(), SCORES, SCORES - np.array([[1.0], [2.0], [3.0]])) == pytest.approx([1, 2, 3])
    with pytest.raises(ShapeError, match="Bias"):
        values(Bias(), SCORES, SCORES[:2])


IDS = np.array([1, 0, 3])
#: (metric, target, error, the culprit).
BAD: list[tuple[metric.Metric, np.ndarray, type[Exception], str]] = [
    (metric.TopKAccuracy(5), IDS, ValueError, "4 classes, received 5"),
    (metric.TopKAccuracy(4), IDS, ValueError, "4 classes, received 4"),
    (metric.Precision(4), LABELS, ValueError, "4 classes, received 4"),
    (metric.Recall(4), LABELS, ValueError, "4 classes, received 4"),
    (metric.BinaryAccuracy(), LABELS.astype("f"), TypeError, "float64"),
    (metric.BinaryAccuracy(), LABELS[:, 0].astype(float), ShapeError, r"\(3, 4\)"),
    (metric.BinaryAccuracy(), 2.0 * LABELS, ValueError, r"2.0 at \[0, 0\]"),
    (metric.Accuracy(), np.array([1, 4, 9]), ValueError, r"Accuracy.*0 to 3, received 4 at \[1\]"),
    (metric.Accuracy(), np.zeros(3), TypeError, "Accuracy.*float64"),
    (metric.Accuracy(), np.zeros(2, int), ShapeError, "Accuracy.*3 targets"),
    (metric.Accuracy(), np.zeros((3, 5)), ShapeError, r"\(3, 5\)"),
    (metric.Precision(2), IDS, ShapeError, r"Precision.*\(3, 4\), received \(3,\)"),
    (metric.Recall(2), IDS, ShapeError, r"Recall.*\(3, 4\), received \(3,\)"),
]


@pytest.mark.parametrize(
    ("made", "target", "error", "wanted"), BAD, ids=[f"{row[0].__class__.__name__} {row[3]}" for row in BAD]
)
@pytest.mark.parametrize("convert", [np.asarray, tensor.from_numpy], ids=["host", "tensor"])
def test_targets_that_do_not_fit_are_refused_before_anything_runs(made, target, error, wanted, convert):
    with pytest.raises(error, match=wanted):
        made.check(SCORES.shape, SCORES.dtype, convert(target))
    x, operations = tensor.from_numpy(SCORES), []
    with device.cpu().watch(operations.append), pytest.raises(error, match=wanted):
        made.evaluate(x, convert(target))
    assert not operations


@pytest.mark.parametrize("shape", [(4, 1), (4, 1, 3)])
@pytest.mark.parametrize("made", [metric.Accuracy(), metric.TopKAccuracy(1), metric.Precision(1), metric.Recall(1)])
def test_one_score_a_sample_is_no_choice(made, shape):
    x, ids = tensor.zeros(shape), np.zeros((4, *shape[2:]), int)
    for target in (ids, np.ones(shape, "f")):
        with pytest.raises(ShapeError, match=r"\(4, 1.*BinaryAccuracy"):
            made.evaluate(x, target)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_binary_accuracy(dtype):
    x = np.array([[0.1, -0.1, 0.0], [-1e-30, 1e-30, NAN], [np.inf, -np.inf, NAN], [0.6, 0.4, 0.5]])
    y = np.array([[1, 0, 0], [1, 1, 1], [1, 1, 0], [1, 0, 0.5]], dtype)
    assert values(metric.BinaryAccuracy(), x, y, dtype) == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])
    assert values(metric.BinaryAccuracy(0.5), x, y, dtype) == pytest.approx([2 / 3, 0, 1 / 3, 1])
    for one in ((4, 1), (4,)):
        assert values(metric.BinaryAccuracy(), x[:, 0].reshape(one), y[:, 0].reshape(one), dtype) == [1, 0, 1, 1]
    images = x[:, None, None], y[:, None, None]
    assert values(metric.BinaryAccuracy(), *images, dtype) == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])


def yes_or_no(score: metric.Metric, graph: bool) -> FeedForwardNet:
    net = FeedForwardNet(loss.SigmoidCrossEntropy(), score, device.new_cpu(), seed=4)
    net.add(layers.Dense("hidden", 8, input_sample_shape=(5,)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("act", "tanh"))
    net.add(layers.Dense("score", 1))
    net.compile(optimizer.SGD(lr=0.5), graph=graph)
    return net


@pytest.mark.parametrize("graph", [True, False])
def test_a_net_with_one_score(graph):
    x = np.random.default_rng(3).standard_normal((40, 5)).astype("f")
    y = (x[:, :1] > x[:, 1:2]).astype("f")
    refused = yes_or_no(metric.Accuracy(), graph)
    before = state_of(refused)
    for call in (refused.fit, refused.evaluate, refused.train_one_batch, refused.gradients):
        with pytest.raises(ShapeError, match=r"Accuracy.*BinaryAccuracy"):
            call(x, y)
    assert state_of(refused) == before
    net = yes_or_no(metric.BinaryAccuracy(), graph)
    history = net.fit(x, y, batch_size=10, epochs=30, verbose=False)["binary_accuracy"]
    assert history[-1] > 0.9 > history[0]
    _, share = net.evaluate(x, y)
    assert share == pytest.approx(np.mean((tensor.to_numpy(net.predict(x)) > 0) == (y > 0)))


def test_the_threshold_is_a_number():
    with pytest.raises(TypeError, match=r"BinaryAccuracy threshold.*'half'"):
        metric.BinaryAccuracy("half")
    with pytest.raises(ValueError, match="BinaryAccuracy threshold"):
        metric.BinaryAccuracy(NAN)


def test_scores_need_classes():
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        metric.Accuracy().forward(tensor.zeros((3,)), np.zeros(3, int))


@pytest.mark.parametrize("make", [metric.TopKAccuracy, metric.Precision, metric.Recall])
@pytest.mark.parametrize("k", [0, -1, 1.5])
def test_k_must_be_a_count(make, k):
    with pytest.raises(ValueError, match=f"{make.__name__} k"):
        make(k)
