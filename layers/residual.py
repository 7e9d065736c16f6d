"""Residual: layers one after the other, and what went in added to what comes out."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Shape, Tensor

from ._checks import label, one_input
from .sequential import Sequential


class Residual(Sequential):
    """y = x + f(x), f its layers one after the other (He and others, arXiv 1512.03385).

    Input and output samples of one shape, which f has to keep: ShapeError if it does not. Parameters and state: those
    of its layers, "<name>/<layer>/weight".

    layers: one or more, of different names, in their order; they are in no net and in no other layer.
    input_sample_shape: default the first layer's.
    """

    passes_mask = True

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        self.gives, self.keeps_values = "", False
        shape = one_input(self, shapes)
        found = super().setup(shape)
        if found != shape:
            raise ShapeError(f"{label(self)}: wanted layers that keep the sample shape {shape}, received {found}")
        return shape

    def forward(self, training: bool, *xs: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        (x,) = xs
        (y,) = self.through(training, x)
        return autograd.add(x, y)
