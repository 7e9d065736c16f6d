"""Dummy: what comes in goes out."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape
from singa_lite.layers._elementwise import Elementwise
from singa_lite.tensor import Tensor


class Dummy(Elementwise):
    """y = x: gives a name to one of several inputs or outputs of a net.

    Input and output samples of any shape.
    """

    keeps_values = True
    passes_mask = False

    def __init__(self, name: str, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same bytes."""
        return autograd.identity(x)


def Input(shape: InputShape, *, name: str | None = None) -> Dummy:
    """A layer that is an input of a net, of samples of this shape, as `keras.Input`."""
    return Dummy(name, shape)  # type: ignore[arg-type]
