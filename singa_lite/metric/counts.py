"""Metrics of how often which class was taken for which: confusion matrix, F1."""

from __future__ import annotations

from math import nan

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.checks import finite, one_of
from singa_lite.criterion import (
    Target,
    check_classes,
    check_labels,
    check_probabilities,
    check_same_shape_and_dtype,
)
from singa_lite.metric.epoch import EpochMetric
from singa_lite.tensor import Shape


class ConfusionMatrix(EpochMetric):
    """(c, c) counts of all samples: in row i and column j those of class i whose highest score is that of class j.

    x: scores (n, c, ...); y: class ids (n, ...), or rows of x's shape whose largest entry names the class. Of equal
    scores the lower class is taken.
    """

    is_number = False

    def statistics(self, scores: Array, target: Array) -> Array:
        return _counts(scores, target)

    def result(self, statistics: Array) -> float | Array:
        return statistics

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """Raise unless it holds class ids or rows, of at least 2 classes."""
        check_classes(self._name, x_shape, "F1")
        check_labels(self._name, x_shape, target)


class F1(EpochMetric):
    """2 * tp / (2 * tp + fp + fn) over all samples: the harmonic mean of precision and recall.

    x: scores (n, c, ...) of at least 2 classes, with class ids or one-hot rows; then average says what is made of the
    classes' values: "macro" their mean, over classes that occur as target or as prediction; "micro" the value of all
    counts, which is the accuracy. Or x: (n,) or (n, 1), with y of x's shape and dtype, yes above 1/2; then it is the
    value of yes, and a score above the threshold is one: 0 for raw scores, 0.5 for probabilities. 0 where nothing is
    right or wrong; as scikit-learn's f1_score.
    """

    higher_is_better = True

    def __init__(self, average: str = "macro", threshold: float = 0.0) -> None:
        self.average = one_of("F1 average", average, ("macro", "micro"))
        self.threshold = finite("F1 threshold", threshold)

    def statistics(self, scores: Array, target: Array) -> Array:
        """(c, c) counts as of ConfusionMatrix, or (1, 3) of yes: right, taken for yes, missed."""
        if not _is_binary(scores.shape):
            return _counts(scores, target)
        said, yes = scores.ravel() > self.threshold, target.ravel() > 0.5
        return np.array([[(said & yes).sum(), (said & ~yes).sum(), (~said & yes).sum()]], np.float64)

    def result(self, statistics: Array) -> float | Array:
        if statistics.shape == (1, 3):
            right, taken, missed = statistics.T
        else:
            right = np.diagonal(statistics)
            taken, missed = statistics.sum(0) - right, statistics.sum(1) - right
            if self.average == "micro":
                right, taken, missed = (np.array([counts.sum()]) for counts in (right, taken, missed))
        whole = 2 * right + taken + missed
        if not whole.any():
            return 0.0 if len(whole) == 1 else nan
        return float((2 * right[whole > 0] / whole[whole > 0]).mean())

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """Raise unless it holds class ids or rows, or 0 and 1 beside one score a sample."""
        if _is_binary(x_shape):
            check_same_shape_and_dtype(self._name, x_shape, dtype, target)
            check_probabilities(self._name, target)
        else:
            check_labels(self._name, x_shape, target)


def _is_binary(shape: Shape) -> bool:
    return len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)


def _counts(scores: Array, target: Array) -> Array:
    classes = scores.shape[1]
    ids = target.argmax(1) if target.shape == scores.shape else target
    pairs = ids.astype(np.int64).ravel() * classes + scores.argmax(1).ravel()
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes).astype(np.float64)
