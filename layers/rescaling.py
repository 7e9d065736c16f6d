"""Rescaling: all elements times a number, plus a number."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import number, one_input


class Rescaling(Layer):
    """y = scale * x + offset. Input and output samples of any shape.

    Rescaling(name, 1 / 255) makes bytes numbers from 0 to 1. scale, offset: finite numbers.
    """

    passes_mask = True

    positionwise = True
    any_length = True

    def __init__(
        self, name: str, scale: float, offset: float = 0.0, *, input_sample_shape: InputShape | None = None
    ) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.scale = number(self, "scale", scale)
        self.offset = number(self, "offset", offset)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        return one_input(self, shapes)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        return autograd.scale(x, self.scale, self.offset)
