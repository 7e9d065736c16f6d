"""Merge: the sum of several inputs."""

from __future__ import annotations

from functools import reduce
from typing import ClassVar

from singa_lite import autograd
from singa_lite.layer.layer import Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import equal_inputs


class Merge(Layer):
    """y = the sum of all inputs, two or more of equal sample shapes; the output has the same."""

    passes_mask = True

    positionwise = True
    any_length = True

    misnomers: ClassVar = {
        **dict.fromkeys(("concat", "concatenate"), "Concat puts its inputs side by side"),
        **dict.fromkeys(("multiply", "mul", "product", "prod"), "Multiply takes the product"),
        **dict.fromkeys(("max", "maximum", "min", "minimum", "average", "avg", "ave", "mean"), "no layer does that"),
    }

    def setup(self, *shapes: Shape) -> Shape:
        """The shape that all inputs have."""
        return equal_inputs(self, shapes)

    def forward(self, training: bool, *xs: Tensor) -> Tensor:
        """xs, each (n, ...) -> the same shape."""
        return reduce(autograd.add, xs)
