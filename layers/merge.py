"""Layers of several inputs or outputs: sums, products, inputs side by side, pieces and copies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import (
    axis_of,
    equal_inputs,
    is_int,
    label,
    leaves_time,
    not_the_batch,
    one_input,
    positive_int,
    several_inputs,
)
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

    def __init__(self, name: str, axis: int, **options: Any) -> None:
        super().__init__(name, **options)
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


class Slice(Layer):
    """Cuts its input into pieces along `axis`, before each of the points; they are views, nothing is copied.

    Input samples of any shape with that axis; a list of len(slice_point) + 1 output samples, each with the
    extent of its piece there.

    axis: counts the batch as 0, negative from the end; never the batch. slice_point: rising numbers from 1 to
    below the extent, one at least.

    >>> net = FeedForwardNet()
    >>> x = net.add(layers.Input((7, 3)))
    >>> net.add(layers.Slice("pieces", 1, [2, 3]), x).output_sample_shape
    [(2, 3), (1, 3), (4, 3)]
    """

    keeps_values = True

    def __init__(self, name: str, axis: int, slice_point: Sequence[int], **options: Any) -> None:
        super().__init__(name, **options)
        self.axis = not_the_batch(self, axis)
        points = tuple(slice_point) if isinstance(slice_point, Sequence) else ()
        valid = points and all(is_int(point) for point in points)
        if not valid or any(start >= stop for start, stop in pairwise((0, *points))):
            raise ValueError(
                f"{label(self)}: wanted slice_point to be rising numbers from 1 on, received {slice_point!r}"
            )
        self.slice_point = tuple(int(point) for point in points)

    def setup(self, *shapes: Shape) -> list[Shape]:
        """The input's shape -> a list of it with the pieces' extents along the axis."""
        shape = one_input(self, shapes)
        place_in_sample = axis_of(self, self.axis, shape) - 1
        self.positionwise = leaves_time(place_in_sample + 1, shape)
        extent = shape[place_in_sample]
        if self.slice_point[-1] >= extent:
            raise ShapeError(
                f"{label(self)}: wanted slice points below {extent}, the extent along axis {self.axis} of "
                f"input samples {shape}, received {self.slice_point}"
            )
        before, after = shape[:place_in_sample], shape[place_in_sample + 1 :]
        bounds = pairwise((0, *self.slice_point, extent))
        return [(*before, stop - start, *after) for start, stop in bounds]

    def forward(self, training: bool, x: Tensor) -> list[Tensor]:
        """x (n, ...) -> its pieces."""
        return list(autograd.split(x, self.axis, self.slice_point))


class Split(Layer):
    """Gives its input out num_output times: nothing is copied, their derivatives are summed.

    Input samples of any shape; a list of num_output output samples of the same.

    >>> net = FeedForwardNet()
    >>> x = net.add(layers.Input((5,)))
    >>> net.add(layers.Split("copies", 2), x).output_sample_shape
    [(5,), (5,)]
    """

    keeps_values = True
    positionwise = True
    any_length = True

    def __init__(self, name: str, num_output: int, **options: Any) -> None:
        super().__init__(name, **options)
        self.num_output = positive_int(self, "num_output", num_output)

    def setup(self, *shapes: Shape) -> list[Shape]:
        """The input's shape, num_output times."""
        return [one_input(self, shapes)] * self.num_output

    def forward(self, training: bool, x: Tensor) -> list[Tensor]:
        """x (n, ...) -> num_output times the same."""
        return [autograd.identity(x) for _ in range(self.num_output)]
