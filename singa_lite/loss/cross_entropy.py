"""Cross entropies of classes and of yes or no."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.checks import share
from singa_lite.common.value_checks import ValuesCheck
from singa_lite.criterion import (
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
from singa_lite.ops.cross_entropy import softmax_cross_entropy_values
from singa_lite.ops.loss import sigmoid_cross_entropy_values
from singa_lite.tensor import Array, Shape, Tensor, to_numpy


class SoftmaxCrossEntropy(Loss):
    """-sum of t * log softmax(x) over the classes, the mean over a sample's positions.

    x: raw scores, at least 2 classes, (n, c, ...) or, as sequences have them, (n, ..., c); y: integer class ids of x's
    shape without the axis of classes, or rows of x's shape of weights that are normalized to sum 1 over the classes:
    one-hot, multi-hot or probabilities, none negative, not all zero.

    axis: of the classes, counted with the batch, not 0. None: axis 1, or the last where only that goes with the shape
    of the ids; ValueError where both do, as of (n, t, t), and then it must be said. Rows do not tell: axis 1.
    ignore_index: an id that does not count, as padding has it. What the mean is of are then all positions of the batch
    that have another id, as of PyTorch's cross_entropy: `forward` gives a sample's sum over such positions times n /
    (all of the batch), and the mean over the batch is 0, with derivatives of 0, where there is none. Of ids only.
    label_smoothing: from 0 to 1, the share of the target that goes to all classes alike.
    """

    applies = "softmax"
    is_counted = True

    def __init__(
        self, axis: int | None = None, *, ignore_index: int | None = None, label_smoothing: float = 0.0
    ) -> None:
        self.axis = checked_class_axis(self._name, axis)
        self.ignore_index = checked_id(f"{self._name} ignore_index", ignore_index)
        self.label_smoothing = share(f"{self._name} label_smoothing", label_smoothing)

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
        return softmax_cross_entropy_values(x, target, axis, self.ignore_index, self.label_smoothing)

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
    """-(t * log p + (1 - t) * log(1 - p)), p = sigmoid(x), the mean over each sample. x: raw scores (n, ...).

    y: x's shape and dtype, values from 0 to 1.
    """

    applies = "sigmoid"

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return sigmoid_cross_entropy_values(x, target)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        super().check_target(x_shape, dtype, target)
        check_probabilities(self._name, target)
