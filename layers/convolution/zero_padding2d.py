"""ZeroPadding2D: images with zeros around them."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape
from singa_lite.layers._checks import input_axes
from singa_lite.layers._margins import Margins
from singa_lite.layers._windows import IMAGE, Extents
from singa_lite.tensor import Shape, Tensor


class ZeroPadding2D(Margins):
    """Zeros around each image.

    Input samples (channels, height, width); output samples (channels, top + height + bottom, left + width + right).

    pad: int, (height, width) or (top, bottom, left, right), at least 0. The layers over windows have a pad of their
    own, which costs no copy.
    """

    def __init__(self, name: str, pad: Extents = 1, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, pad, input_sample_shape)

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, height, width) -> (channels, top + height + bottom, left + width + right)."""
        channels, *extents = input_axes(self, shapes, IMAGE)
        return (channels, *(extent + sum(pair) for extent, pair in zip(extents, self.margins, strict=True)))

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, height, width) -> the same with zeros around it."""
        return autograd.pad(x, self.margins)
