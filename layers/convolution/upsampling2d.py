"""Upsampling2D: larger images by repeated pixels."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.layers._checks import input_axes, label
from singa_lite.layers._windows import IMAGE, Extents, pair
from singa_lite.tensor import Shape, Tensor


class Upsampling2D(Layer):
    """Repeats pixels (nearest-neighbour upsampling): y[c, i, j] = x[c, i // factor, j // factor].

    Input samples (channels, height, width); output samples (channels, height * factor, width * factor).

    factor: int or pair (height, width), at least 1.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.Upsampling2D("up", (2, 3))])
    >>> net.predict(np.ones((2, 3, 8, 6), "float32")).shape
    (2, 3, 16, 18)
    """

    def __init__(
        self,
        name: str,
        factor: Extents = 2,
        *,
        input_sample_shape: InputShape | None = None,
    ) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.factor = pair(label(self), "factor", factor)

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, height, width) -> (channels, height * factor, width * factor)."""
        channels, height, width = input_axes(self, shapes, IMAGE)
        return (channels, height * self.factor[0], width * self.factor[1])

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, height, width) -> (n, channels, height * factor, width * factor)."""
        return autograd.upsample_nearest(x, self.factor)
