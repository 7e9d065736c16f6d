"""Distances between scores and targets of their shape."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.autograd.ops.loss import huber_values, squared_error_values
from singa_lite.common.array_types import DType
from singa_lite.common.checks import above_zero
from singa_lite.common.errors import ShapeError
from singa_lite.layer.criterion import Target
from singa_lite.loss.base import LikeScores
from singa_lite.tensor import Shape, Tensor

#: Least square of a length, below which a direction is taken for none (Keras's epsilon).
_LEAST_SQUARE = 1e-12


class SquaredError(LikeScores):
    """(x - y)**2 / 2, one value an element. y: x's shape and dtype."""

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return squared_error_values(x, target)


class Huber(LikeScores):
    """r**2 / 2 where |r| <= delta, else delta * (|r| - delta / 2), r = x - y; the mean over each sample.

    y: x's shape and dtype; delta: above 0 (Huber, Annals of Mathematical Statistics 35, 1964).
    """

    def __init__(self, delta: float = 1.0) -> None:
        self.delta = above_zero("Huber delta", delta)

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return huber_values(x, target, self.delta)


class MeanSquaredError(LikeScores):
    """(x - y)**2, one value an element: twice `SquaredError`, as Keras and PyTorch have it. y: x's shape and dtype."""

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return autograd.scale(squared_error_values(x, target), 2.0)


class MeanAbsoluteError(LikeScores):
    """|x - y|, one value an element; its derivative is 0 where they are equal. y: x's shape and dtype."""

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        difference = x - target
        return autograd.relu(difference) + autograd.relu(-difference)


class CosineSimilarity(LikeScores):
    """-cos of the angle between x and y along the last axis, the mean over a sample's other positions, as of Keras.

    From -1, of equal directions, to 1. A vector whose square is below 1e-12 counts as of that square. x, y: (n, c) or
    (n, ..., c), equal shapes and dtypes.
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
