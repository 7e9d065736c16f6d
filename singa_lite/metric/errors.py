"""Mean errors, one value a sample."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.common.array_types import DType
from singa_lite.layer.criterion import Target, check_same_shape_and_dtype
from singa_lite.metric.base import Metric
from singa_lite.tensor import Shape, Tensor


class _Errors(Metric):
    """Base of the metrics whose target has the scores' shape and dtype."""

    higher_is_better = False

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """ShapeError or TypeError unless the target has that shape and dtype."""
        check_same_shape_and_dtype(self._name, x_shape, dtype, target)


class MeanSquaredError(_Errors):
    """(x - y)**2, the mean over each sample. y: x's shape and dtype."""

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        difference = x - target
        return _means(difference * difference)


class MeanAbsoluteError(_Errors):
    """|x - y|, the mean over each sample. y: x's shape and dtype."""

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        difference = x - target
        return _means(autograd.relu(difference) + autograd.relu(-difference))


def _means(values: Tensor) -> Tensor:
    return autograd.reduce_mean(autograd.reshape(values, (values.shape[0], -1)), 1)
