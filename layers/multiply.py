"""Multiply: the product of several inputs."""

from __future__ import annotations

from functools import reduce
from typing import ClassVar

from singa_lite import autograd
from singa_lite.layer.layer import Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import equal_inputs


class Multiply(Layer):
    """y = the product of all inputs, two or more of equal sample shapes; the output has the same."""

    passes_mask = True

    positionwise = True
    any_length = True

    misnomers: ClassVar = dict.fromkeys(("sum", "add"), "Merge takes the sum")

    def setup(self, *shapes: Shape) -> Shape:
        """The shape that all inputs have."""
        return equal_inputs(self, shapes)

    def forward(self, training: bool, *xs: Tensor) -> Tensor:
        """xs, each (n, ...) -> the same shape."""
        return reduce(autograd.multiply, xs)
