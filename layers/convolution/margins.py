"""Layers that change the borders and the size of images."""

from __future__ import annotations

from typing import Any

from singa_lite import autograd
from singa_lite.autograd.ops.windows import pads
from singa_lite.common.errors import ShapeError
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import input_axes, label
from singa_lite.layers._windows import IMAGE, Extents, pair
from singa_lite.tensor import Shape, Tensor


class Margins(Layer):
    """Keeps the margins, each a number of pixels of at least 0."""

    features_last = False
    what = "pad"

    def __init__(self, name: str, margins: Extents, **options: Any) -> None:
        super().__init__(name, **options)
        top, bottom, left, right = pads(label(self), margins, what=self.what)
        self.margins = (top, bottom), (left, right)


class ZeroPadding2D(Margins):
    """Puts zeros around each image.

    Input samples (channels, height, width); output samples (channels, top + height + bottom, left + width + right).

    pad: int, (height, width) or (top, bottom, left, right), at least 0. The layers over windows have a pad of their
    own, which costs no copy.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.ZeroPadding2D("pad", (1, 2))])
    >>> net.predict(np.ones((2, 3, 8, 6), "float32")).shape
    (2, 3, 10, 10)
    """

    def __init__(self, name: str, pad: Extents = 1, **options: Any) -> None:
        super().__init__(name, pad, **options)

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, height, width) -> (channels, top + height + bottom, left + width + right)."""
        channels, *extents = input_axes(self, shapes, IMAGE)
        return (channels, *(extent + sum(pair) for extent, pair in zip(extents, self.margins, strict=True)))

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, height, width) -> the same with zeros around it."""
        return autograd.pad(x, self.margins)


class Cropping2D(Margins):
    """Cuts the margins off each image: the output is a view, no copy.

    Input samples (channels, height, width); output samples (channels, height - top - bottom, width - left - right).

    crop: int, (height, width) or (top, bottom, left, right), at least 0; something of the image must be left.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.Cropping2D("crop", (1, 2, 0, 1))])
    >>> net.predict(np.ones((2, 3, 8, 6), "float32")).shape
    (2, 3, 5, 5)
    """

    what = "crop"

    def __init__(self, name: str, crop: Extents = 1, **options: Any) -> None:
        super().__init__(name, crop, **options)

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


class Upsampling2D(Layer):
    """Repeats pixels (nearest-neighbour upsampling): y[c, i, j] = x[c, i // factor, j // factor].

    Input samples (channels, height, width); output samples (channels, height * factor, width * factor).

    factor: int or pair (height, width), at least 1.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.Upsampling2D("up", (2, 3))])
    >>> net.predict(np.ones((2, 3, 8, 6), "float32")).shape
    (2, 3, 16, 18)
    """

    def __init__(self, name: str, factor: Extents = 2, **options: Any) -> None:
        super().__init__(name, **options)
        self.factor = pair(label(self), "factor", factor)

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, height, width) -> (channels, height * factor, width * factor)."""
        channels, height, width = input_axes(self, shapes, IMAGE)
        return (channels, height * self.factor[0], width * self.factor[1])

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, height, width) -> (n, channels, height * factor, width * factor)."""
        return autograd.upsample_nearest(x, self.factor)
