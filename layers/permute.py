"""Permute: the axes of a sample in another order."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import is_int, label, one_input


class Permute(Layer):
    """The sample's axes in another order, as a view.

    Input samples of as many axes as `axes` has; output samples with axis axes[i] of the input as axis i of the output.

    axes: each axis of a sample once, counted from 1, as the batch is axis 0 (as in Keras): (2, 1) turns
    (time, features) into (features, time).
    """

    features_last = False

    def __init__(self, name: str, axes: Sequence[int], *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        given = list(axes) if isinstance(axes, Sequence) and not isinstance(axes, str) else []
        if not given or not all(map(is_int, given)) or sorted(given) != list(range(1, len(given) + 1)):
            raise ValueError(
                f"{label(self)}: wanted axes with each axis of a sample once, counted from 1, such as (2, 1), received "
                f"{axes!r}"
            )
        self.axes: Shape = tuple(int(axis) for axis in given)

    def setup(self, *shapes: Shape) -> Shape:
        """The extents in the order of the axes."""
        shape = one_input(self, shapes)
        if len(shape) != len(self.axes):
            raise ShapeError(f"{label(self)}: wanted input samples of {len(self.axes)} axes, received {shape}")
        return tuple(shape[axis - 1] for axis in self.axes)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same with its axes in their order."""
        return autograd.transpose(x, (0, *self.axes))
