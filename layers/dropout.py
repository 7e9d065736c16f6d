"""Dropout: zeros at random while training."""

from __future__ import annotations

import re

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import label, one_input
from ._dropout import add_random_state, checked_probability


class Dropout(Layer):
    """In training each element is set to 0 with probability p, else divided by 1 - p; else y = x.

    From Srivastava et al. 2014 (JMLR 15), in the inverted form that leaves evaluation alone. No mask is kept:
    the derivative draws the same numbers again.

    Input and output samples of any shape. State: random uint64 (3,), seed, stream and counter; the counter
    goes up by one at each training call, so a restored state repeats the same numbers.

    p: the probability to drop, from 0 to below 1.
    """

    passes_mask = True

    positionwise = True
    any_length = True

    def __init__(self, name: str, p: float = 0.5, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.p = checked_probability(self, p)
        if re.fullmatch(r"0?\.\d+", name) and float(name) != self.p:
            raise ValueError(
                f"{label(self)}: wanted p to be what the name says, received {p}; the name comes first: "
                "Dropout(name, p)"
            )

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = one_input(self, shapes)
        add_random_state(self)
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape; in training the random state moves on."""
        if training and self.p > 0:
            return autograd.dropout(x, self.states["random"], self.p)
        return autograd.identity(x)
