"""Softmax: positive numbers of sum 1 along an axis."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import axis_of, leaves_time, not_the_batch, one_input


class Softmax(Layer):
    """y = e**x / sum of e**x along `axis`.

    Input and output samples of any shape with that axis.

    axis: counts the batch as 0, negative from the end; never the batch.
    """

    gives = "softmax"

    def __init__(self, name: str, axis: int = 1, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.axis = not_the_batch(self, axis)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = one_input(self, shapes)
        self.positionwise = leaves_time(axis_of(self, self.axis, shape), shape)
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        return autograd.softmax(x, self.axis)
