"""Layers that draw random numbers while training: dropouts and noise."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import numpy as np

from singa_lite import autograd
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import dropout_share, input_axes, label, number
from singa_lite.layers._windows import IMAGE, SEQUENCE
from singa_lite.layers.elementwise import Elementwise
from singa_lite.tensor import Shape, Tensor


def add_random_state(layer: Layer) -> None:
    """State random uint64 (3,): seed, stream of the layer, and counter."""
    layer.add_state("random", (3,), dtype=np.uint64).copy_from_numpy(layer.random_key("random"))


class Dropout(Elementwise):
    """Sets each element to 0 with probability p in training, else divides it by 1 - p; in evaluation y = x.

    From Srivastava et al. 2014 (JMLR 15), in the inverted form that leaves evaluation alone. No mask is kept:
    the derivative draws the same numbers again.

    Input and output samples of any shape. State: random uint64 (3,), seed, stream and counter; the counter
    goes up by one at each training call, so a restored state repeats the same numbers.

    p: the probability to drop, from 0 to below 1.

    >>> net = Sequential([layers.Input((5,)), layers.Dropout("drop", 0.2)])
    >>> print(net.predict([[1.0, 2.0, 3.0, 4.0, 5.0]]))  # evaluation drops nothing
    [[1. 2. 3. 4. 5.]]
    """

    def __init__(self, name: str, p: float = 0.5, **options: Any) -> None:
        super().__init__(name, **options)
        self.p = dropout_share(self, "p", p)
        if re.fullmatch(r"0?\.\d+", name) and float(name) != self.p:
            raise ValueError(
                f"{label(self)}: wanted p to be what the name says, received {p}; the name comes first: "
                "Dropout(name, p)"
            )

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = super().setup(*shapes)
        add_random_state(self)
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape; in training the random state moves on."""
        if training and self.p > 0:
            return autograd.dropout(x, self.states["random"], self.p)
        return autograd.identity(x)


class SpatialDropout(Layer):
    """Whole channels at random while training. A subclass names the `axes`."""

    axes: ClassVar[tuple[str, ...]]

    def __init__(self, name: str, p: float = 0.5, **options: Any) -> None:
        super().__init__(name, **options)
        self.p = dropout_share(self, "p", p)

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


class SpatialDropout1D(SpatialDropout):
    """Sets each channel of each sequence to 0 with probability p in training, else divides it by 1 - p. Outside
    training y = x (Tompson and others, arXiv 1411.4280).

    Input and output samples (channels, length). State: random uint64 (3,), as of Dropout.

    p: the probability to drop, from 0 to below 1.

    >>> net = Sequential([layers.Input((3, 10)), layers.SpatialDropout1D("drop", 0.2)])
    >>> net.predict(np.ones((2, 3, 10), "float32")).shape
    (2, 3, 10)
    """

    axes = SEQUENCE


class SpatialDropout2D(SpatialDropout):
    """Sets each channel of each image to 0 with probability p in training, else divides it by 1 - p. Outside training y
    = x (Tompson and others, arXiv 1411.4280).

    Input and output samples (channels, height, width). State: random uint64 (3,), as of Dropout.

    p: the probability to drop, from 0 to below 1.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.SpatialDropout2D("drop", 0.2)])
    >>> net.predict(np.ones((2, 3, 8, 6), "float32")).shape
    (2, 3, 8, 6)
    """

    axes = IMAGE


class GaussianNoise(Elementwise):
    """Adds normal numbers of mean 0 in training; in evaluation y = x.

    Input and output samples of any shape. State: random uint64 (3,), as of Dropout. The numbers are drawn in float32,
    so that they are the same in a net of any dtype.

    std: the standard deviation of the numbers, 0 or more.

    >>> net = Sequential([layers.Input((5,)), layers.GaussianNoise("noise", 0.1)])
    >>> print(net.predict([[1.0, 2.0, 3.0, 4.0, 5.0]]))  # evaluation adds nothing
    [[1. 2. 3. 4. 5.]]
    """

    def __init__(self, name: str, std: float, **options: Any) -> None:
        super().__init__(name, **options)
        self.std = number(self, "std", std, 0)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = super().setup(*shapes)
        add_random_state(self)
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape; in training the random state moves on."""
        if training and self.std > 0:
            noise = autograd.normal(x.shape, self.states["random"], std=self.std)
            return autograd.add(x, autograd.cast(noise, x.dtype))
        return autograd.identity(x)
