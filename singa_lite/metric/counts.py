"""Exact metrics of all samples, by counts and ranks: confusion matrix, F1, precision and recall of yes, AUC."""

from __future__ import annotations

from math import nan

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.checks import check_choice, finite
from singa_lite.common.errors import ShapeError
from singa_lite.layer.criterion import (
    Target,
    check_classes,
    check_labels,
    check_probabilities,
    check_same_shape_and_dtype,
    checked_class_axis,
    checked_id,
    class_axis,
    readable,
    refuse,
)
from singa_lite.metric.epoch import EpochMetric
from singa_lite.tensor import Shape


class _OfClasses(EpochMetric):
    """Base of the metrics of how often which class was taken for which."""

    def __init__(self, axis: int | None = None, ignore_index: int | None = None) -> None:
        self.axis = checked_class_axis(self._name, axis)
        self.ignore_index = checked_id(f"{self._name} ignore_index", ignore_index)

    def statistics(self, scores: Array, target: Array) -> Array:
        """(c, c + 1) counts: row i, column j of class i taken for j, the last column of class i taken for none."""
        axis = class_axis(self._name, self.axis, scores.shape, target.shape)
        classes = scores.shape[axis]
        rows = np.moveaxis(scores, axis, -1).reshape(-1, classes)
        is_rows = target.shape == scores.shape
        ids = np.moveaxis(target, axis, -1).reshape(-1, classes).argmax(1) if is_rows else target.ravel()
        if self.ignore_index is not None:
            counts = ids != self.ignore_index
            rows, ids = rows[counts], ids[counts]
        pairs = ids.astype(np.int64) * (classes + 1) + _top_class(rows)
        return np.bincount(pairs, minlength=classes * (classes + 1)).reshape(classes, -1).astype(np.float64)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """Raise unless it holds class ids or rows, of at least 2 classes."""
        axis = class_axis(self._name, self.axis, x_shape, target.shape)
        check_classes(self._name, x_shape, "F1", axis)
        check_labels(self._name, x_shape, target, axis, self.ignore_index)


class ConfusionMatrix(_OfClasses):
    """Counts samples by class and prediction, (c, c): in row i and column j those of class i whose highest score is
    class j's.

    x: scores (n, c, ...); y: class ids (n, ...), or rows of x's shape whose largest entry names the class. Of equal
    scores the lower class is taken, NaN is never the highest, and a position whose scores are all NaN is in no column.
    axis, ignore_index: as of the loss SoftmaxCrossEntropy.

    >>> scores = tensor.as_tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 4.0], [0.0, 1.0, 0.0]])
    >>> print(metric.ConfusionMatrix().evaluate(scores, np.array([0, 1, 1])))
    [[1. 0. 0.]
     [0. 1. 1.]
     [0. 0. 0.]]
    """

    is_number = False

    def __init__(self, axis: int | None = None, *, ignore_index: int | None = None) -> None:
        super().__init__(axis, ignore_index)

    def result(self, statistics: Array) -> float | Array:
        return statistics[:, :-1]


class F1(_OfClasses):
    """Computes 2 * tp / (2 * tp + fp + fn) over all samples: the harmonic mean of precision and recall.

    x: scores (n, c, ...) of at least 2 classes, with class ids or one-hot rows; then average says what is made of the
    classes' values: "macro" their mean, over classes that occur as target or as prediction; "micro" the value of all
    counts, which is the accuracy. Or x: (n,) or (n, 1), with y of x's shape and dtype, yes above 1/2; then it is the
    value of yes, and a score above the threshold is one: 0 for raw scores, 0.5 for probabilities. 0 where nothing is
    right or wrong; as scikit-learn's f1_score. What has no score but NaN is taken for no class, and is missed.
    axis, ignore_index: of classes, as of the loss SoftmaxCrossEntropy.

    >>> scores = tensor.as_tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 4.0], [0.0, 1.0, 0.0]])
    >>> print(metric.F1().evaluate(scores, np.array([0, 1, 1])))
    0.5555555555555555
    """

    higher_is_better = True

    def __init__(
        self,
        average: str = "macro",
        threshold: float = 0.0,
        axis: int | None = None,
        *,
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(axis, ignore_index)
        self.average = check_choice("F1 average", average, ("macro", "micro"))
        self.threshold = finite("F1 threshold", threshold)

    def statistics(self, scores: Array, target: Array) -> Array:
        """(c, c + 1) counts of classes, or (1, 3) of yes: right, taken for yes, missed."""
        if _is_binary(scores.shape):
            return _of_yes(scores, target, self.threshold)
        return super().statistics(scores, target)

    def result(self, statistics: Array) -> float | Array:
        if statistics.shape == (1, 3):
            right, taken, missed = statistics.T
        else:
            right = np.diagonal(statistics)
            taken, missed = statistics.sum(0)[:-1] - right, statistics.sum(1) - right
            if self.average == "micro":
                right, taken, missed = (np.array([counts.sum()]) for counts in (right, taken, missed))
        whole = 2 * right + taken + missed
        if not whole.any():
            return 0.0 if len(whole) == 1 else nan
        return float((2 * right[whole > 0] / whole[whole > 0]).mean())

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """Raise unless it holds class ids or rows, or 0 and 1 beside one score a sample."""
        if _is_binary(x_shape) and self.ignore_index is None:
            _check_yes(self._name, x_shape, dtype, target)
        else:
            super().check_target(x_shape, dtype, target)


class BinaryPrecision(EpochMetric):
    """Computes the share of true positives among all scores above the threshold: tp / (tp + fp), scikit-learn's
    precision_score.

    x: scores of any shape (n, ...), each by itself; y: x's shape and dtype, yes above 1/2. threshold: a score above it
    is taken for yes, 0 for raw scores, 0.5 for probabilities; NaN is not. 0 where none is taken for yes.

    >>> scores, y = tensor.as_tensor([[2.0], [-1.0], [0.5]]), tensor.as_tensor([[1.0], [1.0], [0.0]])
    >>> print(metric.BinaryPrecision().evaluate(scores, y))
    0.5
    """

    higher_is_better = True

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = finite(f"{self._name} threshold", threshold)

    def statistics(self, scores: Array, target: Array) -> Array:
        """(1, 3): right, taken for yes, missed."""
        return _of_yes(scores, target, self.threshold)

    def result(self, statistics: Array) -> float | Array:
        right, taken, missed = statistics[0]
        return self._share(right, taken, missed)

    def _share(self, right: float, taken: float, missed: float) -> float:
        return float(right / max(right + taken, 1))

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """Raise unless it has the scores' shape and dtype, and values from 0 to 1."""
        _check_yes(self._name, x_shape, dtype, target)


class BinaryRecall(BinaryPrecision):
    """Computes the share of positives that are found: tp / (tp + fn) over all scores, as scikit-learn's recall_score.

    x, y, threshold: as of BinaryPrecision. 0 where none is yes.

    >>> scores, y = tensor.as_tensor([[2.0], [-1.0], [0.5]]), tensor.as_tensor([[1.0], [1.0], [0.0]])
    >>> print(metric.BinaryRecall().evaluate(scores, y))
    0.5
    """

    def _share(self, right: float, taken: float, missed: float) -> float:
        return float(right / max(right + missed, 1))


def _is_binary(shape: Shape) -> bool:
    return len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)


def _check_yes(where: str, x_shape: Shape, dtype: DType, target: Target) -> None:
    check_same_shape_and_dtype(where, x_shape, dtype, target)
    check_probabilities(where, target)


def _of_yes(scores: Array, target: Array, threshold: float) -> Array:
    """(1, 3): right, taken for yes, missed."""
    said, yes = scores.ravel() > threshold, target.ravel() > 0.5
    return np.array([[(said & yes).sum(), (said & ~yes).sum(), (~said & yes).sum()]], np.float64)


def _top_class(scores: Array) -> Array:
    """(n,): the class of the highest score of each row (n, c), the lower one of equals; c where all are NaN."""
    highest = np.fmax.reduce(scores, axis=1, keepdims=True)
    found: Array = np.where(np.isnan(highest[:, 0]), scores.shape[1], (scores == highest).argmax(1))
    return found


class AUC(EpochMetric):
    """Computes the area under the ROC curve of an epoch: how often a positive has a higher score than a negative, ties
    counting one half.

    x: one score a sample or several, each by itself, y: x's shape and dtype, 0 or 1; or scores (n, 2) of two classes
    and ids (n,), where a sample's score is the difference. NaN where all are positive, or none is.

    Keeps 16 bytes a score until the end of the epoch: the score and the label in float64. Hanley and McNeil, Radiology
    143, 1982: the area is that share of pairs.

    >>> scores, y = tensor.as_tensor([[0.1], [0.4], [0.3], [0.9]]), tensor.as_tensor([[0.0], [0.0], [1.0], [1.0]])
    >>> print(metric.AUC().evaluate(scores, y))
    0.75
    """

    gathers = True
    higher_is_better = True

    @np.errstate(all="ignore")  # of scores that are not finite
    def statistics(self, scores: Array, target: Array) -> Array:
        """(n, 2): score, label."""
        if target.shape != scores.shape:
            scores = scores[:, 1] - scores[:, 0]
        return np.stack([scores.ravel(), target.ravel()], 1).astype(np.float64)

    def result(self, statistics: Array) -> float | Array:
        """The share, by the sums of the ranks of the positives; ranks of equal scores are their mean."""
        scores, labels = statistics.T
        if np.isnan(scores).any():
            return nan
        _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
        positives = float(labels.sum())
        negatives = len(labels) - positives
        if not positives or not negatives:
            return nan
        return float((ranks @ labels - positives * (positives + 1) / 2) / (positives * negatives))

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """Raise unless it is 0 or 1 for each score, or ids beside scores of two classes."""
        if len(x_shape) == 2 and x_shape[1] == 2 and target.shape == x_shape[:1]:
            check_labels(self._name, x_shape, target)
            return
        if len(x_shape) == 2 and x_shape[1] > 2 and target.shape == x_shape[:1]:
            raise ShapeError(f"{self._name}: wanted one score a sample, or those of 2 classes, received {x_shape}")
        check_same_shape_and_dtype(self._name, x_shape, dtype, target)
        values = readable(target)
        if values is not None:
            refuse(self._name, "0 or 1", values, (values != 0) & (values != 1))
