"""Cropping2D: the inside of images."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer.layer import InputShape
from singa_lite.layers._checks import input_axes, label
from singa_lite.layers._margins import Margins
from singa_lite.layers._windows import IMAGE, Extents
from singa_lite.tensor import Shape, Tensor


class Cropping2D(Margins):
    """Each image without its margins: a view of it, no copy.

    Input samples (channels, height, width); output samples (channels, height - top - bottom, width - left - right).

    crop: int, (height, width) or (top, bottom, left, right), at least 0; something of the image must be left.
    """

    what = "crop"

    def __init__(self, name: str, crop: Extents = 1, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, crop, input_sample_shape)

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, height, width) -> (channels, height - top - bottom, width - left - right)."""
        channels, *extents = input_axes(self, shapes, IMAGE)
        left = tuple(extent - sum(pair) for extent, pair in zip(extents, self.margins, strict=True))
        if min(left) < 1:
            raise ShapeError(
                f"{label(self)}: wanted images of which the margins {self.margins} leave something, received input "
                f"samples of shape {shapes[0]}"
            )
        return (channels, *left)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, height, width) -> its inside."""
        return autograd.crop(x, self.margins)
