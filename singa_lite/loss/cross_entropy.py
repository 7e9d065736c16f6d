"""Cross entropies of classes and of yes or no."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_lite import autograd
from singa_lite.autograd.ops.loss import sigmoid_cross_entropy_values, softmax_cross_entropy_values, weigh
from singa_lite.common.array_types import DType
from singa_lite.common.arrays import numbers
from singa_lite.common.checks import flag, share
from singa_lite.common.errors import ShapeError
from singa_lite.common.value_checks import ValuesCheck
from singa_lite.layer.criterion import (
    Target,
    check_classes,
    check_labels,
    check_probabilities,
    checked_class_axis,
    checked_id,
    class_axis,
    ids_check,
    ids_shape,
    readable,
    refuse,
)
from singa_lite.loss.base import LikeScores, Loss
from singa_lite.tensor import Array, Shape, Tensor, to_numpy

#: Probabilities are at least this, as in Keras.
_LEAST = 1e-7


class SoftmaxCrossEntropy(Loss):
    """Computes -sum of t * log softmax(x) over the classes, the mean over a sample's positions.

    x: raw scores, at least 2 classes, (n, c, ...) or, as sequences have them, (n, ..., c); y: integer class ids of x's
    shape without the axis of classes, or rows of x's shape of weights that are normalized to sum 1 over the classes:
    one-hot, multi-hot or probabilities, none negative, not all zero.

    axis: of the classes, counted with the batch, not 0. None: axis 1, or the last where only that goes with the shape
    of the ids; ValueError where both do, as of (n, t, t), and then it must be said. Rows do not tell: axis 1.
    ignore_index: an id that does not count, as padding has it. What the mean is of are then all positions of the batch
    that have another id, as of PyTorch's cross_entropy: `forward` gives a sample's sum over such positions times n /
    (all of the batch), and the mean over the batch is 0, with derivatives of 0, where there is none. Of ids only.
    label_smoothing: from 0 to 1, the share of the target that goes to all classes alike.
    from_logits: False, Keras's default: x are probabilities, such as a softmax gives, divided by their sum. Those below
    1e-7 count as 1e-7 and have no derivative, as in Keras.

    >>> scores = tensor.as_tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 4.0]])
    >>> print(loss.SoftmaxCrossEntropy().forward(False, scores, np.array([0, 1])).round(3))
    [0.24  4.036]
    """

    is_counted = True

    def __init__(
        self,
        axis: int | None = None,
        *,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        from_logits: bool = True,
    ) -> None:
        self.axis = checked_class_axis(self._name, axis)
        self.ignore_index = checked_id(f"{self._name} ignore_index", ignore_index)
        self.label_smoothing = share(f"{self._name} label_smoothing", label_smoothing)
        self.from_logits = flag(f"{self._name} from_logits", from_logits)
        self.applies, self.expects = ("softmax", "") if self.from_logits else ("", "softmax")

    @property
    def of_whole_batch(self) -> bool:
        """By how many positions of the whole batch each value is divided."""
        return self.ignore_index is not None

    def counted(self, target: object) -> int | None:
        """The ids that are not to be ignored."""
        if self.ignore_index is None:
            return None
        ids = to_numpy(target) if isinstance(target, Tensor) else np.asarray(target)
        return int(np.count_nonzero(ids != self.ignore_index))

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        axis = class_axis(self._name, self.axis, x.shape, target.shape)
        return self._values_along(axis, x, target)

    def _values_along(self, axis: int, x: Tensor, target: Tensor) -> Tensor:
        """The losses; log(p) are scores whose softmax is p / sum(p)."""
        scores = x if self.from_logits else autograd.log(autograd.maximum(x, _LEAST))
        return softmax_cross_entropy_values(scores, target, axis, self.ignore_index, self.label_smoothing)

    def compute_weighed(self, x: Tensor, target: Tensor, weights: Tensor) -> Tensor:
        """The losses times weights; where one is 0 derivatives are, too, whatever the scores are."""
        if x.ndim > 2:
            return weigh(self.compute(x, target), weights)
        return weigh(self._values_along(1, x, target), weights)

    def position_axis(self, x_shape: Shape, target_shape: Shape, shape: Shape) -> int | None:
        """That of the classes."""
        axis = class_axis(self._name, self.axis, x_shape, target_shape)
        if shape != ids_shape(x_shape, axis):
            raise ShapeError(f"{self._name}: wanted weights {ids_shape(x_shape, axis)} or (n,), received {shape}")
        return axis

    def target_form(self, x_shape: Shape, dtype: DType) -> tuple[Shape, DType]:
        """Class ids, one for each position."""
        return ids_shape(x_shape, 1 if self.axis is None else self.axis), np.dtype(np.int64)

    def target_form_behind(self, x_shape: Shape, dtype: DType, features_last: bool) -> tuple[Shape, DType]:
        """Class ids; where no axis was given, the one that the layers before have their features along."""
        if self.axis is None and features_last:
            return ids_shape(x_shape, -1), np.dtype(np.int64)
        return self.target_form(x_shape, dtype)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        axis = class_axis(self._name, self.axis, x_shape, target.shape)
        check_classes(self._name, x_shape, "SigmoidCrossEntropy", axis)
        if check_labels(self._name, x_shape, target, axis, self.ignore_index):
            return
        rows = readable(target)
        if rows is not None:
            refuse(self._name, "finite weights of at least 0", rows, ~(np.isfinite(rows) & (rows >= 0)))
            sums = rows.sum(axis=axis)
            refuse(self._name, "rows with a sum above 0 over the classes", sums, sums == 0)

    def values_check(self, x_shape: Shape, dtype: DType, target: Array) -> ValuesCheck | None:
        """Of class ids whether they are some."""
        axis = class_axis(self._name, self.axis, x_shape, target.shape)
        return ids_check(x_shape, target, axis, self.ignore_index)


class SigmoidCrossEntropy(LikeScores):
    """Computes -(w * t * log p + (1 - t) * log(1 - p)) with p = sigmoid(x), the mean over each sample. x: raw scores
    (n, ...).

    y: x's shape and dtype, values from 0 to 1. pos_weight: w, what yes counts as, such as the share of no over that of
    yes: a number or an array that broadcasts to a sample, as (c,), of finite numbers of at least 0; as of torch's
    BCEWithLogitsLoss. ShapeError where it does not broadcast to the scores. from_logits: False, Keras's default: x are
    probabilities, such as a sigmoid gives, at least 1e-7 from 0 and 1.

    >>> scores, y = tensor.as_tensor([[0.0, 2.0], [-3.0, 1.0]]), tensor.as_tensor([[1.0, 1.0], [0.0, 0.0]])
    >>> print(loss.SigmoidCrossEntropy().forward(False, scores, y).round(3))
    [0.41  0.681]
    """

    def __init__(self, pos_weight: float | Sequence[float] | Array | None = None, *, from_logits: bool = True) -> None:
        self.pos_weight = None if pos_weight is None else _weights(f"{self._name} pos_weight", pos_weight)
        self.from_logits = flag(f"{self._name} from_logits", from_logits)
        self.applies, self.expects = ("sigmoid", "") if self.from_logits else ("", "sigmoid")

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        if not self.from_logits:
            p = autograd.clip(x, _LEAST, 1.0 - _LEAST)
            x = autograd.log(p) - autograd.log(1.0 - p)
        if self.pos_weight is None:
            return sigmoid_cross_entropy_values(x, target)
        less = np.asarray(self.pos_weight, x.dtype) - 1
        if x.ndim == 2 and less.size == x.shape[1]:  # of rows too, whose features had another axis
            less = less.reshape(-1)
        losses = (1.0 - target) * x + (target * less + 1.0) * autograd.softplus(-x)
        return autograd.reduce_mean(autograd.reshape(losses, (x.shape[0], -1)), 1)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        super().check_target(x_shape, dtype, target)
        check_probabilities(self._name, target)
        shape = np.asarray(1.0 if self.pos_weight is None else self.pos_weight, np.float64).shape
        beyond = len(shape) > len(x_shape) - 1
        if beyond or any(own not in (1, of_x) for own, of_x in zip(shape[::-1], x_shape[::-1], strict=False)):
            raise ShapeError(f"{self._name} pos_weight: wanted one for samples {x_shape[1:]}, received shape {shape}")


def _weights(where: str, given: object) -> object:
    """A number, or numbers in lists. TypeError or ValueError unless all are finite and at least 0."""
    array = numbers(where, given)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{where}: wanted numbers, received {given!r:.100}")
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"{where}: wanted finite numbers of at least 0, received {given!r:.100}")
    return array.astype(np.float64).tolist()
