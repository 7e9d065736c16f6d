"""Dummy: what comes in goes out."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import one_input


class Dummy(Layer):
    """y = x: gives a name to one of several inputs or outputs of a net.

    Input and output samples of any shape.
    """

    keeps_values = True

    positionwise = True
    any_length = True

    def __init__(self, name: str, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        return one_input(self, shapes)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same bytes."""
        return autograd.identity(x)


def Input(shape: InputShape, *, name: str | None = None) -> Dummy:
    """A layer that is an input of a net, of samples of this shape, as `keras.Input`."""
    return Dummy(name, shape)  # type: ignore[arg-type]
