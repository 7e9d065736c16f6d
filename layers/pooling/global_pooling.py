"""Poolings over whole images and sequences."""

from __future__ import annotations

from typing import ClassVar

from singa_lite import autograd
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import input_axes
from singa_lite.layers._windows import IMAGE, SEQUENCE, as_images
from singa_lite.tensor import Shape, Tensor


class GlobalPooling(Layer):
    """One number for each channel. A subclass names the `axes`."""

    axes: ClassVar[tuple[str, ...]]

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, *extents) -> (channels,)."""
        return input_axes(self, shapes, self.axes)[:1]


class GlobalAvgPooling(GlobalPooling):
    """The average of each channel's elements."""

    misnomers: ClassVar = {"max": "GlobalMaxPooling takes the largest"}

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, *extents) -> (n, channels)."""
        return autograd.global_avg_pool2d(as_images(x))


class GlobalMaxPooling(GlobalPooling):
    """The largest of each channel's elements."""

    misnomers: ClassVar = dict.fromkeys(("average", "avg", "ave", "mean"), "GlobalAvgPooling takes averages")

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, *extents) -> (n, channels)."""
        images = as_images(x)
        return autograd.flatten(autograd.max_pool2d(images, images.shape[2:], 1))


class GlobalAvgPooling1D(GlobalAvgPooling):
    """Takes the average of each channel's whole sequence. Of samples (time, features) it takes Permute(name, (2, 1))
    before.

    Input samples (channels, length); output samples (channels,).

    >>> net = Sequential([layers.Input((2, 3)), layers.GlobalAvgPooling1D()])
    >>> print(net.predict([[[1.0, 2.0, 6.0], [4.0, 4.0, 4.0]]]))
    [[3. 4.]]
    """

    axes = SEQUENCE


class GlobalAvgPooling2D(GlobalAvgPooling):
    """Takes the average of each channel's whole image (Lin, Chen and Yan, arXiv 1312.4400).

    Input samples (channels, height, width); output samples (channels,).

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.GlobalAvgPooling2D()])
    >>> net.predict(np.ones((2, 3, 8, 6), "float32")).shape
    (2, 3)
    """

    axes = IMAGE


class GlobalMaxPooling1D(GlobalMaxPooling):
    """Takes the largest element of each channel's whole sequence; of equals the first gets the derivative. Of samples
    (time, features) it takes Permute(name, (2, 1)) before.

    Input samples (channels, length); output samples (channels,).

    >>> net = Sequential([layers.Input((2, 3)), layers.GlobalMaxPooling1D()])
    >>> print(net.predict([[[1.0, 2.0, 6.0], [4.0, 4.0, 4.0]]]))
    [[6. 4.]]
    """

    axes = SEQUENCE


class GlobalMaxPooling2D(GlobalMaxPooling):
    """Takes the largest element of each channel's whole image; of equals the first gets the derivative.

    Input samples (channels, height, width); output samples (channels,).

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.GlobalMaxPooling2D()])
    >>> net.predict(np.ones((2, 3, 8, 6), "float32")).shape
    (2, 3)
    """

    axes = IMAGE
