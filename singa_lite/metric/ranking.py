"""AUC: the area under the receiver operating characteristic, exact over an epoch."""

from __future__ import annotations

from math import nan

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import ShapeError
from singa_lite.layer.criterion import Target, check_labels, check_same_shape_and_dtype, readable, refuse
from singa_lite.metric.epoch import EpochMetric
from singa_lite.tensor import Shape


class AUC(EpochMetric):
    """How often a positive has a higher score than a negative, ties counting one half; of all samples of an epoch.

    x: one score a sample or several, each by itself, y: x's shape and dtype, 0 or 1; or scores (n, 2) of two classes
    and ids (n,), where a sample's score is the difference. NaN where all are positive, or none is.

    Keeps 16 bytes a score until the end of the epoch: the score and the label in float64. Hanley and McNeil, Radiology
    143, 1982: the area is that share of pairs.
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
