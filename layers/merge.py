"""Layers of several inputs: sums, products, and inputs side by side."""

from __future__ import annotations

from functools import reduce
from typing import ClassVar

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.layers._checks import axis_of, equal_inputs, label, leaves_time, not_the_batch, several_inputs
from singa_lite.tensor import Shape, Tensor


class Merge(Layer):
    """Adds its inputs, two or more of equal sample shapes; the output has the same.

    >>> net = FeedForwardNet()
    >>> x = net.add(layers.Input((3,), name="x"))
    >>> net.add(layers.Merge("sum"), [x, net.add(layers.Activation("act", "relu"), x)])
    <Merge 'sum' -> (3,)>
    >>> print(net.predict([[-1.0, 0.0, 2.0]]))
    [[-1.  0.  4.]]
    """

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


class Multiply(Layer):
    """Multiplies its inputs, two or more of equal sample shapes; the output has the same.

    >>> net = FeedForwardNet()
    >>> x = net.add(layers.Input((3,), name="x"))
    >>> net.add(layers.Multiply("gated"), [x, net.add(layers.Activation("gate", "sigmoid"), x)])
    <Multiply 'gated' -> (3,)>
    >>> print(net.predict([[-1.0, 0.0, 2.0]]).round(3))
    [[-0.269  0.     1.762]]
    """

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


class Concat(Layer):
    """Puts its inputs side by side along `axis`, in the order of the sources.

    Two or more inputs whose sample shapes are equal but for that axis; the output has the sum of the extents
    there.

    axis: counts the batch as 0, negative from the end; never the batch.

    >>> net = FeedForwardNet()
    >>> sources = [net.add(layers.Input((extent,)), src=[]) for extent in (3, 4)]
    >>> net.add(layers.Concat("both", axis=1), sources).output_sample_shape
    (7,)
    """

    def __init__(self, name: str, axis: int, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.axis = not_the_batch(self, axis)

    def setup(self, *shapes: Shape) -> Shape:
        """Shapes equal but for the axis -> the same with the sum of the extents there."""
        first = several_inputs(self, shapes)[0]
        axis = axis_of(self, self.axis, first) - 1
        self.positionwise = leaves_time(axis + 1, first)
        before, after = first[:axis], first[axis + 1 :]
        for shape in shapes:
            others = shape[:axis], shape[axis + 1 :]
            if len(shape) != len(first) or others != (before, after):
                raise ShapeError(
                    f"{label(self)}: wanted input samples of equal shapes but for axis {self.axis}, "
                    f"received {list(shapes)}"
                )
        return (*before, sum(shape[axis] for shape in shapes), *after)

    def forward(self, training: bool, *xs: Tensor) -> Tensor:
        """xs, each (n, ...) -> one, longer along the axis."""
        return autograd.concat(xs, self.axis)
