"""Flatten: the axes from one on, as one."""

from __future__ import annotations

from math import prod

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import axis_of, not_the_batch, one_input


class Flatten(Layer):
    """All axes from `axis` on become one, in C order; those before it stay.

    Input samples of any shape; output samples (product of all extents,) for axis 1, (first extent, product of
    the others) for axis 2, and so on.

    axis: counts the batch as 0, negative from the end; never the batch.
    """

    keeps_values = True

    def __init__(self, name: str, axis: int = 1, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.axis = not_the_batch(self, axis)

    def setup(self, *shapes: Shape) -> Shape:
        """(*kept, *merged) -> (*kept, product of the merged)."""
        return self._flat(one_input(self, shapes))

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, *kept, *merged) -> (n, *kept, product of the merged)."""
        return autograd.reshape(x, (x.shape[0], *self._flat(x.shape[1:])))

    def _flat(self, shape: Shape) -> Shape:
        kept = axis_of(self, self.axis, shape) - 1
        return (*shape[:kept], prod(shape[kept:]))
