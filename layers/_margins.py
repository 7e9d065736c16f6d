"""Base of the layers that add or cut off the margins of images."""

from __future__ import annotations

from singa_lite.autograd.ops.windows import pads
from singa_lite.layer.layer import InputShape, Layer

from ._checks import label
from ._windows import Extents


class Margins(Layer):
    """Keeps the margins, each a number of pixels of at least 0."""

    features_last = False
    what = "pad"

    def __init__(self, name: str, margins: Extents, input_sample_shape: InputShape | None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        top, bottom, left, right = pads(label(self), margins, what=self.what)
        self.margins = (top, bottom), (left, right)
