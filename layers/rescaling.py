"""Rescaling: all elements times a number, plus a number."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape
from singa_lite.layers._checks import number
from singa_lite.layers._elementwise import Elementwise
from singa_lite.tensor import Tensor


class Rescaling(Elementwise):
    """Computes y = scale * x + offset. Input and output samples of any shape.

    Rescaling(name, 1 / 255) makes bytes numbers from 0 to 1. scale, offset: finite numbers.

    >>> net = Sequential([layers.Input((3,)), layers.Rescaling("scale", 1 / 4, offset=-1.0)])
    >>> print(net.predict([[0.0, 4.0, 8.0]]))
    [[-1.  0.  1.]]
    """

    def __init__(
        self, name: str, scale: float, offset: float = 0.0, *, input_sample_shape: InputShape | None = None
    ) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.scale = number(self, "scale", scale)
        self.offset = number(self, "offset", offset)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        return autograd.scale(x, self.scale, self.offset)
