"""Losses of a target of the scores' shape: distances, hinge and Kullback-Leibler divergence."""

from __future__ import annotations

import numpy as np

from singa_lite import autograd
from singa_lite.autograd.ops.loss import huber_values, softmax_cross_entropy_values, squared_error_values
from singa_lite.common.array_types import DType
from singa_lite.common.checks import above_zero
from singa_lite.common.errors import ShapeError
from singa_lite.layer.criterion import Target, check_classes, readable, refuse
from singa_lite.loss.base import LikeScores
from singa_lite.tensor import Shape, Tensor

#: Least square of a length, below which a direction is taken for none (Keras's epsilon).
_LEAST_SQUARE = 1e-12
#: Below this a probability counts as 0 in p * log(p).
_LEAST = 1e-30
#: How far the sum of a row of probabilities may be from 1.
_SUM_WITHIN = 1e-3


class SquaredError(LikeScores):
    """Computes half the squared error, (x - y)**2 / 2, one value an element. y: x's shape and dtype.

    >>> x, y = tensor.as_tensor([[1.0], [4.0]]), tensor.as_tensor([[1.0], [1.0]])
    >>> loss.SquaredError().evaluate(False, x, y).item()
    2.25
    """

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return squared_error_values(x, target)


class Huber(LikeScores):
    """Computes r**2 / 2 where |r| <= delta, else delta * (|r| - delta / 2), with r = x - y; the mean over each sample.

    y: x's shape and dtype; delta: above 0 (Huber, Annals of Mathematical Statistics 35, 1964).

    >>> x, y = tensor.as_tensor([[1.0], [4.0]]), tensor.as_tensor([[1.0], [1.0]])
    >>> print(loss.Huber(delta=1.0).forward(False, x, y))
    [0.  2.5]
    """

    def __init__(self, delta: float = 1.0) -> None:
        self.delta = above_zero("Huber delta", delta)

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return huber_values(x, target, self.delta)


class MeanSquaredError(LikeScores):
    """Computes the squared error, (x - y)**2, one value an element: twice `SquaredError`, as Keras and PyTorch have it.
    y: x's shape and dtype.

    >>> x, y = tensor.as_tensor([[1.0], [4.0]]), tensor.as_tensor([[1.0], [1.0]])
    >>> loss.MeanSquaredError().evaluate(False, x, y).item()
    4.5
    """

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return autograd.scale(squared_error_values(x, target), 2.0)


class MeanAbsoluteError(LikeScores):
    """Computes the absolute error, |x - y|, one value an element; its derivative is 0 where they are equal. y: x's
    shape and dtype.

    >>> x, y = tensor.as_tensor([[1.0], [4.0]]), tensor.as_tensor([[1.0], [1.0]])
    >>> loss.MeanAbsoluteError().evaluate(False, x, y).item()
    1.5
    """

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        difference = x - target
        return autograd.relu(difference) + autograd.relu(-difference)


class CosineSimilarity(LikeScores):
    """Computes -cos of the angle between x and y along the last axis, the mean over a sample's other positions, as
    Keras.

    From -1, of equal directions, to 1. A vector whose square is below 1e-12 counts as of that square. x, y: (n, c) or
    (n, ..., c), equal shapes and dtypes.

    >>> x, y = tensor.as_tensor([[1.0, 0.0], [3.0, 4.0]]), tensor.as_tensor([[2.0, 0.0], [4.0, -3.0]])
    >>> print(loss.CosineSimilarity().forward(False, x, y))
    [-1. -0.]
    """

    feature_axes = (-1,)

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        cosines = autograd.reduce_sum(_direction(x) * _direction(target), -1)
        return -autograd.reduce_mean(autograd.reshape(cosines, (x.shape[0], -1)), 1)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """As for all losses of this kind; ShapeError for scores without an axis beside the batch too."""
        if len(x_shape) < 2:
            raise ShapeError(f"{self._name}: wanted scores (n, ..., c), received {x_shape}")
        super().check_target(x_shape, dtype, target)


def _direction(x: Tensor) -> Tensor:
    """x / sqrt(max(sum of squares, 1e-12)), along the last axis."""
    square = autograd.reduce_sum(x * x, -1, keepdims=True)
    return x * autograd.power(autograd.relu(square - _LEAST_SQUARE) + _LEAST_SQUARE, -0.5)


class Hinge(LikeScores):
    """Computes max(0, 1 - y * x), the mean over each sample; its derivative is 0 at the margin.

    x: raw scores (n, ...); y: x's shape and dtype, -1 or 1.

    >>> x, y = tensor.as_tensor([[0.5], [2.0]]), tensor.as_tensor([[1.0], [-1.0]])
    >>> print(loss.Hinge().forward(False, x, y))
    [0.5 3. ]
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
    """Computes the sum of y * log(y / softmax(x)) over the classes, axis 1; the mean over a sample's positions.

    x: raw scores (n, c, ...), at least 2 classes; y: probabilities of x's shape and dtype, whose sum over the classes
    is 1. Cross entropy less the entropy of y, so that 0 is the least; 0 * log(0) counts as 0.

    >>> scores, y = tensor.as_tensor([[0.0, 0.0]]), tensor.as_tensor([[0.25, 0.75]])
    >>> print(loss.KLDivergence().forward(False, scores, y).round(3))
    [0.131]
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
