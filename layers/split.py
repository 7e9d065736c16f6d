"""Layers of several outputs: pieces along an axis, and copies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.layers._checks import axis_of, is_int, label, leaves_time, not_the_batch, one_input, positive_int
from singa_lite.tensor import Shape, Tensor


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

    def __init__(
        self,
        name: str,
        axis: int,
        slice_point: Sequence[int],
        *,
        input_sample_shape: InputShape | None = None,
    ) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
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

    def __init__(self, name: str, num_output: int, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.num_output = positive_int(self, "num_output", num_output)

    def setup(self, *shapes: Shape) -> list[Shape]:
        """The input's shape, num_output times."""
        return [one_input(self, shapes)] * self.num_output

    def forward(self, training: bool, x: Tensor) -> list[Tensor]:
        """x (n, ...) -> num_output times the same."""
        return [autograd.identity(x) for _ in range(self.num_output)]
