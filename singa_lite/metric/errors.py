"""Mean errors, one value a sample, and R2, the coefficient of determination of all samples."""

from __future__ import annotations

from math import nan

import numpy as np

from singa_lite import autograd
from singa_lite.common.array_types import Array, DType
from singa_lite.layer.criterion import Target, check_same_shape_and_dtype
from singa_lite.metric.base import Metric
from singa_lite.metric.epoch import EpochMetric
from singa_lite.tensor import Shape, Tensor


class _Errors(Metric):
    """Base of the metrics whose target has the scores' shape and dtype."""

    higher_is_better = False

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """ShapeError or TypeError unless the target has that shape and dtype."""
        check_same_shape_and_dtype(self._name, x_shape, dtype, target)


class MeanSquaredError(_Errors):
    """Computes the squared error, (x - y)**2, the mean over each sample. y: x's shape and dtype.

    >>> x, y = tensor.as_tensor([[1.0], [4.0]]), tensor.as_tensor([[1.0], [1.0]])
    >>> metric.MeanSquaredError().evaluate(x, y).item()
    4.5
    """

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        difference = x - target
        return _means(difference * difference)


class MeanAbsoluteError(_Errors):
    """Computes the absolute error, |x - y|, the mean over each sample. y: x's shape and dtype.

    >>> x, y = tensor.as_tensor([[1.0], [4.0]]), tensor.as_tensor([[1.0], [1.0]])
    >>> metric.MeanAbsoluteError().evaluate(x, y).item()
    1.5
    """

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        difference = x - target
        return _means(autograd.relu(difference) + autograd.relu(-difference))


def _means(values: Tensor) -> Tensor:
    return autograd.reduce_mean(autograd.reshape(values, (values.shape[0], -1)), 1)


class R2(EpochMetric):
    """Computes 1 - sum of (y - x)**2 / sum of (y - mean of y)**2 over all samples; the mean over a sample's elements.

    y: x's shape and dtype. An element whose targets are all equal counts 1 where it is predicted exactly, else 0, as of
    scikit-learn's r2_score. NaN for fewer than two samples.

    >>> x, y = tensor.as_tensor([[1.0], [4.0], [3.0]]), tensor.as_tensor([[1.0], [5.0], [3.0]])
    >>> print(metric.R2().evaluate(x, y))
    0.875
    """

    higher_is_better = True

    @np.errstate(all="ignore")  # of scores that are not finite
    def statistics(self, scores: Array, target: Array) -> Array:
        """(4, elements): samples, mean of the targets, their squares around it, squares of the errors."""
        x, t = (array.reshape(len(array), -1).astype(np.float64) for array in (scores, target))
        mean = t.mean(0)
        return np.stack([np.full(len(mean), float(len(t))), mean, ((t - mean) ** 2).sum(0), ((t - x) ** 2).sum(0)])

    @np.errstate(all="ignore")
    def joined(self, before: Array, more: Array) -> Array:
        """By the update of Chan, Golub and LeVeque (1979), which takes no difference of large sums."""
        count, shift = before[0] + more[0], more[1] - before[1]
        mean = before[1] + shift * more[0] / count
        around = before[2] + more[2] + shift**2 * before[0] * more[0] / count
        return np.stack([count, mean, around, before[3] + more[3]])

    @np.errstate(all="ignore")
    def result(self, statistics: Array) -> float | Array:
        count, _, around, errors = statistics
        if count[0] < 2:
            return nan
        shares = np.where(around > 0, 1 - errors / np.where(around > 0, around, 1), np.where(errors > 0, 0.0, 1.0))
        return float(np.where(np.isnan(around) | np.isnan(errors), nan, shares).mean())

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """ShapeError or TypeError unless the target has the scores' shape and dtype."""
        check_same_shape_and_dtype(self._name, x_shape, dtype, target)
