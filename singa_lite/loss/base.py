"""Loss: values a sample, the mean over them, and its exact gradient, which comes from the tape."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import ClassVar, NamedTuple

from singa_lite import autograd
from singa_lite.autograd.backward_pass import BackwardPass
from singa_lite.autograd.ops.loss import by_rows
from singa_lite.autograd.ops.op import Edge, no_grad
from singa_lite.autograd.ops.shape import Identity
from singa_lite.common.array_types import DType
from singa_lite.common.checks import flag
from singa_lite.common.contexts import in_own_context
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.common.value_checks import ValuesCheck, any_values
from singa_lite.device import Device, device_of
from singa_lite.graph.graph import Phase
from singa_lite.layer.criterion import Criterion, Target, check_same_shape_and_dtype, ids_shape
from singa_lite.tensor import Array, Shape, Tensor, full


class _Taped(NamedTuple):
    """What backward needs of a forward: where its values stand on the tape, and the mark that x passed."""

    values: Edge
    mark: Identity
    shape: Shape
    dtype: DType
    device: Device


class Loss(Criterion, ABC):
    """The base of all losses. A subclass gives `compute`, and `check_target` if not any target will do.

    >>> class Cubed(loss.Loss):
    ...     def compute(self, x, target):
    ...         return autograd.abs(x - target) ** 3
    >>> Cubed().evaluate(False, tensor.as_tensor([[1.0], [4.0]]), tensor.as_tensor([[1.0], [2.0]])).item()
    4.0
    """

    #: What the loss applies to the scores itself, so that no layer before it should: "softmax" or "sigmoid".
    applies: str = ""
    #: What a layer before the loss has to apply, as the loss takes probabilities: "softmax" or "sigmoid".
    expects: str = ""

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
    def forward(self, training: bool, x: Tensor, y: object, weights: Tensor | None = None) -> Tensor:
        """The loss of each sample. y: Tensor, NumPy, or anything that holds an array. Raises as `check` does.

        weights: (n,), x's dtype and device; what each sample's loss is multiplied by. Or (n, ...), one for each
        position, see `position_axis`: then the result is (n,), the mean over a sample's positions, and of its elements.
        Where a weight is 0 neither x nor y is read.

        training: what `backward` needs is kept until it is called; a later forward takes its place. GraphError for a y
        that needs a derivative then: there is one by x alone.
        """
        flag(f"{self._name} training", training)
        target, leaf = self._beside(x, y), x.detach()
        if not training:
            with no_grad():
                return self._values(leaf, target, weights)
        if target.requires_grad:
            raise GraphError(
                f"{self._name}: wanted a target that needs no derivative, received one from a tape; give its detach(), "
                "or compute the loss by operations of autograd"
            )
        leaf.requires_grad = True
        mark = Identity()
        values = self._values(mark(leaf), target, weights)
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

    def _values(self, x: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
        if weights is None:
            return self._check_values(x, self.compute(x, target))
        if weights.ndim == 1:
            return self._check_values(x, self.compute_weighed(x, target, weights.detach()))
        axis = self.position_axis(x.shape, target.shape, weights.shape)
        if axis is None:
            rows, rows_of_target = (autograd.reshape(tensor, (-1, 1)) for tensor in (x, target))
        else:
            rows, rows_of_target = by_rows(x, target, axis)
        values = self.compute_weighed(rows, rows_of_target, autograd.reshape(weights.detach(), (-1,)))
        return autograd.reduce_mean(autograd.reshape(values, (x.shape[0], -1)), 1)

    def compute_weighed(self, x: Tensor, target: Tensor, weights: Tensor) -> Tensor:
        """As `compute`, times a weight for each sample, (n,); also for rows, (positions, features), in their place."""
        counts = autograd.reshape(autograd.not_equal(weights, 0.0), (-1, *(1,) * (x.ndim - 1)))
        x, target = (autograd.where(counts, t, 0.0) if t.dtype == x.dtype else t for t in (x, target))
        values = self.compute(x, target)
        return values * autograd.reshape(weights, (-1, *(1,) * (values.ndim - 1)))

    #: Axes that positions may have their features along; one for each element only where there are several.
    feature_axes: ClassVar[tuple[int, ...]] = (-1, 1)

    def position_axis(self, x_shape: Shape, target_shape: Shape, shape: Shape) -> int | None:
        """The axis of features, which weights (n, ...) of this shape by position do not have; None: one an element.

        ShapeError for another shape, and for one that goes with two axes.
        """
        if shape == x_shape and len(self.feature_axes) > 1:
            return None
        axes = {axis % len(x_shape) for axis in self.feature_axes}
        found = [axis for axis in axes if len(x_shape) > 2 and ids_shape(x_shape, axis) == shape]
        if len(found) == 1:
            return found[0]
        wanted = [(x_shape[0],), *(ids_shape(x_shape, axis) for axis in axes), x_shape]
        raise ShapeError(
            f"{self._name}: wanted weights of samples, or of positions that leave out one axis, of {wanted}, received "
            f"{shape}"
        )

    def counted(self, target: object) -> int | None:
        """Of how many values of a batch the mean is, where it is not of all samples; else None."""
        return None

    def evaluate(self, training: bool, x: Tensor, y: object, weights: Tensor | None = None) -> Tensor:
        """The mean of forward's values, shape (): sum(weight * loss) / n. Raises as `check` does."""
        return autograd.reduce_mean(self.forward(training, x, y, weights))

    def target_form(self, x_shape: Shape, dtype: DType) -> tuple[Shape, DType]:
        """Shape and dtype of the usual target for scores of this shape and dtype: theirs."""
        return x_shape, dtype

    def target_form_behind(self, x_shape: Shape, dtype: DType, features_last: bool) -> tuple[Shape, DType]:
        """As `target_form`. features_last: whether the layers before have their features along the last axis."""
        return self.target_form(x_shape, dtype)


class LikeScores(Loss):
    """Base of the losses whose target has the scores' shape and dtype."""

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """ShapeError or TypeError unless the target has that shape and dtype."""
        check_same_shape_and_dtype(self._name, x_shape, dtype, target)

    def values_check(self, x_shape: Shape, dtype: DType, target: Array) -> ValuesCheck | None:
        """Nothing more."""
        return any_values
