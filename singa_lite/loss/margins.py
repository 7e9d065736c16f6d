"""Losses of classification beside the cross entropies: hinge and Kullback-Leibler divergence."""

from __future__ import annotations

import numpy as np

from singa_lite import autograd
from singa_lite.autograd.ops.loss import softmax_cross_entropy_values
from singa_lite.common.array_types import DType
from singa_lite.layer.criterion import Target, check_classes, readable, refuse
from singa_lite.loss.base import LikeScores
from singa_lite.tensor import Shape, Tensor

#: Below this a probability counts as 0 in p * log(p).
_LEAST = 1e-30
#: How far the sum of a row of probabilities may be from 1.
_SUM_WITHIN = 1e-3


class Hinge(LikeScores):
    """max(0, 1 - y * x), the mean over each sample; its derivative is 0 at the margin.

    x: raw scores (n, ...); y: x's shape and dtype, -1 or 1.
    """

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        values = autograd.relu(1.0 - target * x)
        return autograd.reduce_mean(autograd.reshape(values, (x.shape[0], -1)), 1)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """As for all losses of this kind; ValueError for values other than -1 and 1."""
        super().check_target(x_shape, dtype, target)
        values = readable(target)
        if values is not None:
            refuse(self._name, "-1 or 1, as 2 * y - 1 makes of 0 and 1", values, np.abs(values) != 1)


class KLDivergence(LikeScores):
    """sum of y * log(y / softmax(x)) over the classes, axis 1; the mean over a sample's positions.

    x: raw scores (n, c, ...), at least 2 classes; y: probabilities of x's shape and dtype, whose sum over the classes
    is 1. Cross entropy less the entropy of y, so that 0 is the least; 0 * log(0) counts as 0.
    """

    applies = "softmax"
    feature_axes = (1,)

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        logs = autograd.log(autograd.relu(target - _LEAST) + _LEAST)
        terms = autograd.reduce_sum(autograd.reshape(target * logs, (*x.shape[:2], -1)), 1)
        return softmax_cross_entropy_values(x, target, 1) + autograd.reduce_mean(terms, 1)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """As for all losses of this kind; ValueError for a negative value, or a sum that is not 1."""
        super().check_target(x_shape, dtype, target)
        check_classes(self._name, x_shape, "SigmoidCrossEntropy")
        rows = readable(target)
        if rows is not None:
            refuse(self._name, "probabilities of at least 0", rows, ~(rows >= 0))
            sums = rows.sum(axis=1)
            refuse(self._name, "rows with a sum of 1 over the classes", sums, np.abs(sums - 1) > _SUM_WITHIN)
