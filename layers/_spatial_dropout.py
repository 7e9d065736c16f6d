"""Base of the layers that drop whole channels: all but the number of axes."""

from __future__ import annotations

from typing import ClassVar

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import input_axes
from ._dropout import add_random_state, checked_probability


class SpatialDropout(Layer):
    """Whole channels at random while training. A subclass names the `axes`."""

    axes: ClassVar[tuple[str, ...]]

    def __init__(self, name: str, p: float = 0.5, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.p = checked_probability(self, p)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = input_axes(self, shapes, self.axes)
        add_random_state(self)
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, ...) -> the same shape; in training the random state moves on."""
        if training and self.p > 0:
            return autograd.spatial_dropout(x, self.states["random"], self.p)
        return autograd.identity(x)
