"""Shares of right predictions: among classes, among labels, of yes or no."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.autograd.ops.loss import by_rows
from singa_lite.common.array_types import Array, DType
from singa_lite.common.checks import finite, integer
from singa_lite.common.errors import ShapeError
from singa_lite.common.value_checks import ValuesCheck
from singa_lite.layer.criterion import (
    Target,
    check_classes,
    check_labels,
    check_probabilities,
    check_same_shape_and_dtype,
    checked_class_axis,
    checked_id,
    class_axis,
    ids_check,
)
from singa_lite.metric.base import Metric
from singa_lite.tensor import Shape, Tensor


class _AmongTopK(Metric):
    """Base of the metrics over the k highest scores of x (n, c, ...); ties go to the lower class."""

    kernel: str
    higher_is_better = True

    def __init__(self, k: int) -> None:
        self.k = integer(f"{self._name} k", k, 1)

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return _by_kernel(self.kernel, self.k, x, target)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """Raise unless it holds class ids (n, ...) or rows (n, c, ...), and there are more than k classes."""
        self._check(x_shape, target, 1, None)

    def _check(self, x_shape: Shape, target: Target, axis: int, ignored: int | None) -> None:
        """Raise, see `check_target`. Among k of k classes everything is, whatever the scores are."""
        check_classes(self._name, x_shape, "BinaryAccuracy", axis)
        check_labels(self._name, x_shape, target, axis, ignored)
        if self.k >= x_shape[axis]:
            raise ValueError(f"{self._name}: wanted k below the {x_shape[axis]} classes, received {self.k}")


def _by_kernel(kernel: str, k: int, x: Tensor, target: Tensor) -> Tensor:
    values: Tensor = x.device.empty(x.shape[:1], x.dtype)
    x.device.run(kernel, x, target, values, k=k)
    return values


class TopKAccuracy(_AmongTopK):
    """Counts 1 where the target's class is among the k highest scores, else 0; the mean over a sample's positions.

    y: integer class ids of x's shape without the axis of classes, or rows of x's shape whose largest entry names the
    class. axis, ignore_index: as of the loss SoftmaxCrossEntropy, and what the mean is of too.

    >>> scores = tensor.as_tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 4.0]])
    >>> metric.TopKAccuracy(k=2).evaluate(scores, np.array([0, 1])).item()
    1.0
    """

    kernel = "in_top_k"
    is_counted = True

    def __init__(self, k: int = 5, axis: int | None = None, *, ignore_index: int | None = None) -> None:
        super().__init__(k)
        self.axis = checked_class_axis(self._name, axis)
        self.ignore_index = checked_id(f"{self._name} ignore_index", ignore_index)
        if type(self) is TopKAccuracy:
            self.name = f"top_{self.k}_accuracy"

    @property
    def of_whole_batch(self) -> bool:
        """By how many positions of the whole batch each value is divided."""
        return self.ignore_index is not None

    def count(self, target: Array) -> float:
        """How many positions count, with an id that does not; else the samples."""
        return len(target) if self.ignore_index is None else int((target != self.ignore_index).sum())

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        axis = class_axis(self._name, self.axis, x.shape, target.shape)
        if axis == 1 and self.ignore_index is None:
            return super().compute(x, target)
        rows, flat = by_rows(x, target, axis)
        if self.ignore_index is None:
            values = super().compute(rows, flat)
        else:
            ids, weights = x.device.empty(flat.shape, flat.dtype), x.device.empty(flat.shape, x.dtype)
            x.device.run("target_weights", flat, ids, weights, ignored=self.ignore_index)
            values = super().compute(rows, ids)
            x.device.run("weigh", values, weights, values)
        return autograd.reduce_mean(autograd.reshape(values, (x.shape[0], -1)), axes=1)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """As of the base, the classes along the axis."""
        axis = class_axis(self._name, self.axis, x_shape, target.shape)
        self._check(x_shape, target, axis, self.ignore_index)

    def values_check(self, x_shape: Shape, dtype: DType, target: Array) -> ValuesCheck | None:
        """As of that loss."""
        axis = class_axis(self._name, self.axis, x_shape, target.shape)
        return ids_check(x_shape, target, axis, self.ignore_index)


class Accuracy(TopKAccuracy):
    """Counts 1 where the target's class has the highest score, else 0; of equal scores the lowest class is taken.

    y, axis, ignore_index: as of TopKAccuracy.

    >>> scores = tensor.as_tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 4.0]])
    >>> metric.Accuracy().evaluate(scores, np.array([0, 1])).item()
    0.5
    """

    def __init__(self, axis: int | None = None, *, ignore_index: int | None = None) -> None:
        super().__init__(1, axis, ignore_index=ignore_index)


class BinaryAccuracy(Metric):
    """Counts 1 where a score is above the threshold and its target above 1/2, or neither; else 0, as for NaN.

    The mean over each sample. x: scores (n, ...); y: x's shape and dtype, values from 0 to 1.
    threshold: 0 for raw scores, as SigmoidCrossEntropy takes them; 0.5 for probabilities.

    >>> scores, y = tensor.as_tensor([[2.0], [-1.0], [0.5]]), tensor.as_tensor([[1.0], [0.0], [0.0]])
    >>> print(metric.BinaryAccuracy().forward(scores, y))
    [1. 1. 0.]
    """

    higher_is_better = True

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = finite("BinaryAccuracy threshold", threshold)

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        """As the choice between two classes: no, whose score is the threshold's distance from x, and yes."""
        above, yes = (autograd.reshape(t, (x.shape[0], 1, -1)) for t in (x - self.threshold, target))
        scores, rows = autograd.concat([-above, above], 1), autograd.concat([1 - yes, yes], 1)
        return _by_kernel("in_top_k", 1, scores, rows)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """Raise unless it has the scores' shape and dtype, and values from 0 to 1."""
        check_same_shape_and_dtype(self._name, x_shape, dtype, target)
        check_probabilities(self._name, target)


class _AmongLabels(_AmongTopK):
    def __init__(self, top_k: int) -> None:
        super().__init__(top_k)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """Raise unless it holds rows of the scores' shape, and there are k classes."""
        super().check_target(x_shape, dtype, target)
        if target.shape != x_shape:
            raise ShapeError(f"{self._name}: wanted a target of the scores' shape {x_shape}, received {target.shape}")


class Precision(_AmongLabels):
    """Computes how many of the `top_k` highest scores are labels, divided by top_k.

    The mean over a sample's positions. y: rows (n, c, ...), a label where above 0.

    >>> scores, y = tensor.as_tensor([[2.0, 0.0, 1.0]]), tensor.as_tensor([[1.0, 0.0, 0.0]])
    >>> metric.Precision(top_k=2).evaluate(scores, y).item()
    0.5
    """

    kernel = "precision_at_k"


class Recall(_AmongLabels):
    """Computes how many labels are among the `top_k` highest scores, divided by how many there are; 0 without labels.

    The mean over a sample's positions. y: rows (n, c, ...), a label where above 0.

    >>> scores, y = tensor.as_tensor([[2.0, 0.0, 1.0]]), tensor.as_tensor([[1.0, 0.0, 0.0]])
    >>> metric.Recall(top_k=2).evaluate(scores, y).item()
    1.0
    """

    kernel = "recall_at_k"
