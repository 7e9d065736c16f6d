"""Losses: values a sample, the mean over them, and its exact gradient, which comes from the tape."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np

from singa_lite import autograd
from singa_lite.array_types import DType
from singa_lite.backward_pass import BackwardPass
from singa_lite.checks import above_zero, flag, share
from singa_lite.contexts import in_own_context
from singa_lite.criterion import (
    Criterion,
    Target,
    check_classes,
    check_labels,
    check_probabilities,
    check_same_shape_and_dtype,
    checked_class_axis,
    checked_id,
    class_axis,
    ids_shape,
    readable,
    refuse,
)
from singa_lite.device import Device, device_of
from singa_lite.errors import GraphError
from singa_lite.graph import Phase
from singa_lite.ops.cross_entropy import softmax_cross_entropy_values
from singa_lite.ops.loss import (
    huber_values,
    sigmoid_cross_entropy_values,
    squared_error_values,
)
from singa_lite.ops.op import Edge, no_grad
from singa_lite.ops.shape import Identity
from singa_lite.tensor import Shape, Tensor, full


class _Taped(NamedTuple):
    """What backward needs of a forward: where its values stand on the tape, and the mark that x passed."""

    values: Edge
    mark: Identity
    shape: Shape
    dtype: DType
    device: Device


class Loss(Criterion, ABC):
    """Base of all losses. A subclass gives `compute`, and `check_target` if not any target will do."""

    #: What the loss applies to the scores itself, so that no layer before it should: "softmax" or "sigmoid".
    applies: ClassVar[str] = ""

    _taped: _Taped | None = None

    def __getstate__(self) -> dict[str, object]:
        """What a copy has: all but what is kept for `backward`."""
        return {name: value for name, value in vars(self).items() if name != "_taped"}

    @abstractmethod
    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of each sample, composed of the operations of `autograd`.

        x: scores (n, ...); target: one that `check` let through, on x's device; result: (n,), or (n, ...) if
        each element counts by itself.
        """

    @in_own_context
    def forward(self, training: bool, x: Tensor, y: object) -> Tensor:
        """The loss of each sample. y: Tensor, NumPy, or anything that holds an array. Raises as `check` does.

        training: what `backward` needs is kept until it is called; a later forward takes its place. GraphError for a y
        that needs a derivative then: there is one by x alone.
        """
        flag(f"{self._name} training", training)
        target, leaf = self._beside(x, y), x.detach()
        if not training:
            with no_grad():
                return self._check_values(leaf, self.compute(leaf, target))
        if target.requires_grad:
            raise GraphError(
                f"{self._name}: wanted a target that needs no derivative, received one from a tape; give its detach(), "
                "or compute the loss by operations of autograd"
            )
        leaf.requires_grad = True
        mark = Identity()
        values = self._check_values(leaf, self.compute(mark(leaf), target))
        self._keep(_Taped(Edge(values.creator, values.output_index, None), mark, values.shape, x.dtype, device_of(x)))
        return values.detach()

    def backward(self) -> Tensor:
        """The derivative of the mean of forward's values by x, of x's shape and dtype.

        GraphError unless forward(True, ...) came before; once a forward.
        """
        return self.scaled_backward(1.0)

    @in_own_context
    def scaled_backward(self, share: float, scale: Tensor | None = None) -> Tensor:
        """As `backward`, times `share`: for samples that are such a share of a batch, by whose mean is derived.

        scale: float64 (), which is read where this runs, multiplies it too.
        """
        if self._taped is None:
            raise GraphError(f"{self._name}: wanted forward(True, x, y) before each backward()")
        taped = self._taped
        self._keep(None)
        with taped.device.scope(Phase.DERIVATIVE):
            dy = full(taped.shape, share / prod(taped.shape), taped.dtype, taped.device)
            if scale is not None:
                taped.device.run("scale_by", scale, dy)
        tape = BackwardPass([(taped.values, dy)], wanted=[taped.mark])
        del dy
        while tape.next_sequence >= 0:
            if tape.step():
                raise GraphError(f"{self._name}: wanted a loss without parameters, which nobody would update")
        if taped.mark not in tape.captured:
            raise GraphError(f"{self._name}: wanted compute() to make its result from x by taped operations")
        return tape.captured[taped.mark]

    def _keep(self, taped: _Taped | None) -> None:
        object.__setattr__(self, "_taped", taped)  # as a frozen dataclass allows it too

    def evaluate(self, training: bool, x: Tensor, y: object) -> Tensor:
        """The mean of forward's values, shape (). Raises as `check` does."""
        return autograd.reduce_mean(self.forward(training, x, y))

    def target_form(self, x_shape: Shape, dtype: DType) -> tuple[Shape, DType]:
        """Shape and dtype of the usual target for scores of this shape and dtype: theirs."""
        return x_shape, dtype

    def target_form_behind(self, x_shape: Shape, dtype: DType, features_last: bool) -> tuple[Shape, DType]:
        """As `target_form`. features_last: whether the layers before have their features along the last axis."""
        return self.target_form(x_shape, dtype)


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


class _LikeScores(Loss):
    """Base of the losses whose target has the scores' shape and dtype."""

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """ShapeError or TypeError unless the target has that shape and dtype."""
        check_same_shape_and_dtype(self._name, x_shape, dtype, target)


class SigmoidCrossEntropy(_LikeScores):
    """-(t * log p + (1 - t) * log(1 - p)), p = sigmoid(x), the mean over each sample. x: raw scores (n, ...).

    y: x's shape and dtype, values from 0 to 1.
    """

    applies = "sigmoid"

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return sigmoid_cross_entropy_values(x, target)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        super().check_target(x_shape, dtype, target)
        check_probabilities(self._name, target)


class SquaredError(_LikeScores):
    """(x - y)**2 / 2, one value an element. y: x's shape and dtype."""

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return squared_error_values(x, target)


class Huber(_LikeScores):
    """r**2 / 2 where |r| <= delta, else delta * (|r| - delta / 2), r = x - y; the mean over each sample.

    y: x's shape and dtype; delta: above 0 (Huber, Annals of Mathematical Statistics 35, 1964).
    """

    def __init__(self, delta: float = 1.0) -> None:
        self.delta = above_zero("Huber delta", delta)

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return huber_values(x, target, self.delta)
