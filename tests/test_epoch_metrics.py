"""Metrics over whole epochs, by scikit-learn; lists and names; micro-batches, budgets and devices alike."""

from __future__ import annotations

import numpy as np
import pytest

import skips
from singa_lite import FeedForwardNet, layers, metric, optimizer, tensor
from singa_lite.errors import GraphError, ShapeError

RNG = np.random.default_rng(8)
X = RNG.normal(0, 1, (23, 5)).astype(np.float32)
IDS = RNG.integers(0, 3, 23)


def made(given, outputs=3, loss="softmax_cross_entropy", **options) -> FeedForwardNet:
    net = FeedForwardNet(loss, given, seed=2)
    net.add(layers.Dense("hidden", 6, input_sample_shape=(5,)))
    net.add(layers.Dense("scores", outputs))
    net.compile(optimizer.SGD(0.1, momentum=0.9), **options)
    return net


def over_batches(given, scores, target, size=4):
    """What fit makes of it: statistics of batches of unequal sizes, put together."""
    kept = None
    for start in range(0, len(scores), size):
        more = given.statistics(scores[start : start + size], target[start : start + size])
        join = (lambda a, b: np.concatenate([a, b])) if given.gathers else given.joined
        kept = more if kept is None else join(kept, more)
    return given.result(kept)


def test_area_under_the_curve():
    library = skips.library("sklearn.metrics")
    labels = RNG.integers(0, 2, 23).astype(np.float32)
    for scores in (RNG.normal(0, 1, 23), RNG.integers(0, 4, 23), np.zeros(23)):  # ties: some, all
        assert over_batches(metric.AUC(), scores, labels) == pytest.approx(library.roc_auc_score(labels, scores))
    assert np.isnan(over_batches(metric.AUC(), np.arange(4.0), np.ones(4)))
    two = RNG.normal(0, 1, (23, 2))
    wanted = library.roc_auc_score(labels, two[:, 1] - two[:, 0])
    assert over_batches(metric.AUC(), two, labels.astype(int)) == pytest.approx(wanted)


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_f1(average):
    library = skips.library("sklearn.metrics")
    scores = RNG.normal(0, 1, (23, 5))
    ids = RNG.integers(0, 4, 23)  # class 4 is predicted, never the target
    wanted = library.f1_score(ids, scores.argmax(1), average=average)
    assert over_batches(metric.F1(average), scores, ids) == pytest.approx(wanted)
    assert over_batches(metric.F1(average), scores, np.eye(5)[ids]) == pytest.approx(wanted)
    yes = RNG.integers(0, 2, (23, 1)).astype(float)
    said = library.f1_score(yes.ravel(), scores[:, 0] > 0.3)
    assert over_batches(metric.F1(average, 0.3), scores[:, :1], yes) == pytest.approx(said)


@pytest.mark.parametrize("threshold", [0.0, 0.7])
def test_precision_and_recall_of_yes(threshold):
    library = skips.library("sklearn.metrics")
    scores, yes = RNG.normal(0, 1, (23, 2)), RNG.integers(0, 2, (23, 2)).astype(float)
    for kind, wanted in (
        (metric.BinaryPrecision, library.precision_score),
        (metric.BinaryRecall, library.recall_score),
    ):
        found = over_batches(kind(threshold), scores, yes)
        assert found == pytest.approx(wanted(yes.ravel(), scores.ravel() > threshold))
        assert over_batches(kind(threshold), np.full(5, -1.0), np.zeros(5)) == 0
    assert type(metric.get("binary_recall")) is metric.BinaryRecall


@pytest.mark.parametrize("axis", [1, -1])
def test_ids_that_do_not_count(axis):
    library = skips.library("sklearn.metrics")
    scores, ids = RNG.normal(0, 1, (9, 4, 3)), RNG.integers(0, 3, (9, 4))
    ids[RNG.random(ids.shape) < 0.4] = -100
    given = np.moveaxis(scores, -1, axis)
    real, said = ids[ids >= 0], scores.argmax(-1)[ids >= 0]
    options = {"axis": axis, "ignore_index": -100}
    wanted = library.confusion_matrix(real, said, labels=range(3))
    np.testing.assert_array_equal(over_batches(metric.ConfusionMatrix(**options), given, ids), wanted)
    for average in ("macro", "micro"):
        wanted = library.f1_score(real, said, average=average)
        assert over_batches(metric.F1(average, **options), given, ids) == pytest.approx(wanted)
    metric.F1(**options).check(given.shape, given.dtype, ids)
    with pytest.raises(ValueError, match="from 0 to 2, or 7"):
        metric.ConfusionMatrix(axis, ignore_index=7).check(given.shape, given.dtype, ids)


def test_what_has_no_score_but_nan_is_taken_for_no_class():
    scores = np.array([[3.0, 1, 2], [np.nan] * 3, [np.nan, -np.inf, np.nan], [np.nan, 0, 5], [np.nan] * 3])
    ids = np.array([0, 0, 1, 2, 1])
    np.testing.assert_array_equal(over_batches(metric.ConfusionMatrix(), scores, ids, 2), np.eye(3))
    assert over_batches(metric.F1("micro"), scores, ids, 2) == pytest.approx(6 / 8)
    assert over_batches(metric.F1(), scores, ids, 2) == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    yes = np.array([1.0, 1, 0])
    for kind, wanted in ((metric.F1, 2 / 3), (metric.BinaryPrecision, 1), (metric.BinaryRecall, 0.5)):
        assert over_batches(kind(), np.array([1.0, np.nan, np.nan]), yes) == pytest.approx(wanted)
    with np.errstate(invalid="ignore"):
        assert np.isnan(over_batches(metric.AUC(), scores[:, 0], (ids == 0).astype(float)))
    for kind in (metric.Accuracy(), metric.TopKAccuracy(2), metric.Precision(1), metric.Recall(2)):
        target = np.eye(3)[ids] if kind.name in ("precision", "recall") else ids
        values = tensor.to_numpy(kind.forward(tensor.from_numpy(scores), target))
        np.testing.assert_array_equal(values, [1, 0, 1, 1, 0])
    values = metric.BinaryAccuracy().forward(tensor.from_numpy(np.array([np.nan, np.nan])), np.array([0.0, 1]))
    np.testing.assert_array_equal(tensor.to_numpy(values), [0, 0])


def test_determination_and_confusion():
    library = skips.library("sklearn.metrics")
    target = RNG.normal(1e4, 1, (23, 2))  # far from 0, where a difference of sums would be all rounding
    scores = target + RNG.normal(0, 0.5, (23, 2))
    assert over_batches(metric.R2(), scores, target) == pytest.approx(library.r2_score(target, scores), rel=1e-9)
    assert over_batches(metric.R2(), np.ones((4, 1)), np.ones((4, 1))) == 1.0
    assert over_batches(metric.R2(), np.zeros((4, 1)), np.ones((4, 1))) == 0.0
    scores = RNG.normal(0, 1, (23, 3))
    wanted = library.confusion_matrix(IDS, scores.argmax(1), labels=range(3))
    np.testing.assert_array_equal(over_batches(metric.ConfusionMatrix(), scores, IDS), wanted)


MODES = [{}, {"graph": False}, {"micro_batches": 3}, {"memory_budget": "1 MiB"}, {"precision": "bfloat16"}]


@pytest.mark.parametrize("options", MODES, ids=str)
def test_evaluate_is_exact_over_all_samples_in_every_mode(options):
    library = skips.library("sklearn.metrics")
    net = made(["accuracy", "f1", metric.ConfusionMatrix(), "perplexity"], **options)
    history = net.fit(X, IDS, 4, 2, validation_data=(X, IDS), verbose=False)
    _, found = net.evaluate(X, IDS, 4)
    scores = np.asarray(net.predict(X))
    wanted = library.confusion_matrix(IDS, scores.argmax(1), labels=range(3))
    np.testing.assert_array_equal(found["confusion_matrix"], wanted)
    assert history["val_f1"][-1] == found["f1"]
    np.testing.assert_array_equal(history["val_confusion_matrix"][-1], wanted)
    _, batch = net.train_one_batch(X, IDS)
    assert batch["f1"].shape == () and batch["confusion_matrix"].shape == (3, 3)
    assert found["f1"] == pytest.approx(library.f1_score(IDS, scores.argmax(1), average="macro"))
    logs = scores - np.log(np.exp(scores.astype(float)).sum(1, keepdims=True))
    assert found["perplexity"] == pytest.approx(np.exp(-logs[np.arange(23), IDS].mean()), rel=1e-5)


def test_metrics_by_output_stand_under_both_names():
    net = FeedForwardNet({"a": "mse", "b": "softmax_cross_entropy"}, {"a": ["mae", "r2"], "b": "accuracy"}, seed=1)
    start = net.add(layers.Dense("start", 4, input_sample_shape=(5,)))
    net.add(layers.Dense("a", 2), start)
    net.add(layers.Dense("b", 3), start)
    net.compile(optimizer.SGD(0.01))
    y = {"a": X[:, :2], "b": IDS}
    history = net.fit(X, y, 10, 1, verbose=False)
    assert {"a_mean_absolute_error", "a_r2", "b_accuracy"} < history.history.keys()
    assert net.train_one_batch(X, y)[1].keys() == {"a_mean_absolute_error", "a_r2", "b"}


def test_positions_that_do_not_count_weigh_nothing():
    net = FeedForwardNet("softmax_cross_entropy", [metric.Accuracy(axis=-1, ignore_index=-1)], seed=2)
    net.add(layers.Dense("scores", 3, input_sample_shape=(5, 4)))
    net.loss.ignore_index, net.loss.axis = -1, -1
    net.compile(optimizer.SGD(0.1))
    x, ids = RNG.normal(0, 1, (7, 5, 4)).astype(np.float32), RNG.integers(0, 3, (7, 5))
    ids[2:, 1:] = -1
    right = np.asarray(net.predict(x)).argmax(-1) == ids
    assert net.evaluate(x, ids, 2)[1]["accuracy"] == pytest.approx(right[ids >= 0].mean())


def test_bad_ones_are_refused():
    with pytest.raises(ValueError, match="accuracy"):
        made(["accuracy", metric.Accuracy()])
    with pytest.raises(GraphError, match="nothing"):
        made({"nothing": "accuracy"})
    with pytest.raises(TypeError, match="AUC"):
        made([metric.AUC])
    with pytest.raises(ValueError, match="average"):
        metric.F1("weighted")
    with pytest.raises(ShapeError, match="AUC: wanted one score a sample"):
        made("auc").train_one_batch(X, IDS)
    with pytest.raises(ValueError, match="AUC"):
        made("auc", 1, "sigmoid_cross_entropy").train_one_batch(X, np.full((23, 1), 0.5, np.float32))
    with pytest.raises(TypeError, match="R2"):
        metric.R2().forward(tensor.from_numpy(X), X)
