"""Dummy: what comes in goes out."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape
from singa_lite.layers._elementwise import Elementwise
from singa_lite.tensor import Tensor


class Dummy(Elementwise):
    """Passes its input on, y = x, and so gives a name to one of several inputs or outputs of a net.

    Input and output samples of any shape.

    >>> net = FeedForwardNet()
    >>> hidden = net.add(layers.Dense(4, input_sample_shape=(5,)))
    >>> net.add(layers.Dummy("features"), hidden)
    <Dummy 'features' -> (4,)>
    >>> net.output_names()
    ['features']
    """

    keeps_values = True
    passes_mask = False

    def __init__(self, name: str, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same bytes."""
        return autograd.identity(x)


def Input(shape: InputShape, *, name: str | None = None) -> Dummy:
    """Returns a layer that is an input of a net, of samples of this shape, as `keras.Input`.

    >>> net = Sequential([layers.Input((5,), name="pixels"), layers.Dense(3)])
    >>> net.input_shapes()
    {'pixels': (5,)}
    """
    return Dummy(name, shape)  # type: ignore[arg-type]
