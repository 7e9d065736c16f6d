"""Layers that keep the shape and do the same to each element, and their base."""

from __future__ import annotations

from typing import Any

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.layers._checks import number, one_input
from singa_lite.tensor import Shape, Tensor


class Elementwise(Layer):
    """A layer of one input that keeps its shape and does the same to each element. A subclass gives `forward`."""

    passes_mask = True
    positionwise = True
    any_length = True

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        return one_input(self, shapes)


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


class Rescaling(Elementwise):
    """Computes y = scale * x + offset. Input and output samples of any shape.

    Rescaling(name, 1 / 255) makes bytes numbers from 0 to 1. scale, offset: finite numbers.

    >>> net = Sequential([layers.Input((3,)), layers.Rescaling("scale", 1 / 4, offset=-1.0)])
    >>> print(net.predict([[0.0, 4.0, 8.0]]))
    [[-1.  0.  1.]]
    """

    def __init__(self, name: str, scale: float, offset: float = 0.0, **options: Any) -> None:
        super().__init__(name, **options)
        self.scale = number(self, "scale", scale)
        self.offset = number(self, "offset", offset)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        return autograd.scale(x, self.scale, self.offset)
