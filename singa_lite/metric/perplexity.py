"""Perplexity."""

from __future__ import annotations

from math import exp, inf, log, nan

from singa_lite import autograd
from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import ShapeError
from singa_lite.layer.criterion import Target, check_classes, check_labels, checked_class_axis, checked_id, class_axis
from singa_lite.metric.base import Metric
from singa_lite.tensor import Shape, Tensor

#: The largest power of e that is a float, to the whole.
_LARGEST = 709


class Perplexity(Metric):
    """Computes e to the mean cross entropy of softmax(x): among so many classes that are equally likely one would
    choose.

    `forward` gives the cross entropies, `evaluate` the perplexity of a batch; over an epoch it is that of all samples.
    y: integer class ids; axis, ignore_index: as of the loss SoftmaxCrossEntropy.

    >>> print(metric.Perplexity().evaluate(tensor.zeros((2, 5), "float64"), np.array([0, 3])).round(3))
    5.0
    """

    higher_is_better = False
    is_counted = True

    def __init__(self, axis: int | None = None, *, ignore_index: int | None = None) -> None:
        self.axis = checked_class_axis(self._name, axis)
        self.ignore_index = checked_id(f"{self._name} ignore_index", ignore_index)

    @property
    def of_whole_batch(self) -> bool:
        """The mean of powers is no power of the mean."""
        return True

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        axis = class_axis(self._name, self.axis, x.shape, target.shape)
        return autograd.softmax_cross_entropy_values(x, target, axis, self.ignore_index)

    def of_mean(self, mean: Tensor) -> Tensor:
        """e to the mean of forward's values."""
        with autograd.no_grad():
            return autograd.exp(mean)

    def count(self, target: Array) -> float:
        """How many positions count."""
        return target.size if self.ignore_index is None else int((target != self.ignore_index).sum())

    def before_mean(self, value: float) -> float:
        """The cross entropy."""
        return log(value) if value > 0 else nan

    def after_mean(self, mean: float) -> float:
        """e to the mean cross entropy; infinite where that is no float any more."""
        return exp(mean) if mean < _LARGEST else inf if mean == mean else nan

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """Raise unless it holds class ids."""
        axis = class_axis(self._name, self.axis, x_shape, target.shape)
        check_classes(self._name, x_shape, "BinaryAccuracy", axis)
        if not check_labels(self._name, x_shape, target, axis, self.ignore_index):
            raise ShapeError(f"{self._name}: wanted class ids, received rows of weights {target.shape}")
