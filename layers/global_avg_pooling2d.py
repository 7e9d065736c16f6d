"""GlobalAvgPooling2D: average of each channel's whole image."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer import Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import input_axes
from ._windows import IMAGE


class GlobalAvgPooling2D(Layer):
    """The average of each channel's whole image (Lin, Chen and Yan, arXiv 1312.4400).

    Input samples (channels, height, width); output samples (channels,).
    """

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, height, width) -> (channels,)."""
        return input_axes(self, shapes, IMAGE)[:1]

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, height, width) -> (n, channels)."""
        return autograd.global_avg_pool2d(x)
