"""Base of the convolution layers: all but the number of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer import initializer
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.layers._checks import bias_init as checked_bias_init
from singa_lite.layers._checks import flag, init, input_axes, label, positive_int
from singa_lite.layers._windows import PADDINGS, Extents, as_images, as_samples, output_extents, padded, window
from singa_lite.layers.activation import Activated, activated, checked_activation, gives_of, mode_of
from singa_lite.tensor import Shape, Tensor


class Convolution(Layer):
    """A convolution over images, or over sequences as images of height 1. A subclass names the `axes`."""

    axes: ClassVar[tuple[str, ...]]
    paddings: ClassVar[tuple[str, ...]] = PADDINGS
    features_last = False
    feed_layout = "image"

    def __init__(
        self,
        name: str,
        nb_kernels: int,
        kernel: Extents = 3,
        stride: Extents = 1,
        border_mode: str = "same",
        pad: Extents | None = None,
        use_bias: bool = True,
        *,
        padding: str | None = None,
        groups: int = 1,
        dilation: Extents = 1,
        activation: Activated = None,
        weight_init: initializer.Spec = "glorot_uniform",
        bias_init: initializer.Spec = 0.0,
        input_sample_shape: InputShape | None = None,
    ) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.nb_kernels = positive_int(self, "nb_kernels", nb_kernels)
        self.groups = positive_int(self, "groups", groups)
        if self.nb_kernels % self.groups:
            raise ValueError(f"{label(self)}: wanted groups to divide the {nb_kernels} kernels, received {groups}")
        self.window = window(
            self, len(self.axes) - 1, kernel, stride, border_mode, pad, dilation, padding, self.paddings
        )
        self.padding = padding
        self.use_bias = flag(self, "use_bias", use_bias)
        self.activation = checked_activation(self, activation)
        self.gives = gives_of(self.activation)
        self.weight_init = init(self, "weight_init", weight_init)
        self.bias_init = checked_bias_init(self, bias_init, self.use_bias)

    def summary_note(self) -> str:
        """The window and the activation."""
        return ", ".join(filter(None, (str(self.window), mode_of(self.activation))))

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, *extents) -> (nb_kernels, *how many windows fit)."""
        channels, *extents = self.grouped_input(shapes)
        self.window = padded(self.window, self.padding, extents)
        counts = output_extents(self, self.window, extents)
        self.add_parameters((self.nb_kernels, channels // self.groups), channels)
        return (self.nb_kernels, *counts)

    def grouped_input(self, shapes: Sequence[Shape]) -> Shape:
        """The only input's sample shape. ShapeError unless the groups divide its channels."""
        shape = input_axes(self, shapes, self.axes)
        if shape[0] % self.groups:
            raise ShapeError(
                f"{label(self)}: wanted a number of channels that the {self.groups} groups divide, "
                f"received input samples of shape {shapes[0]}"
            )
        return shape

    def add_parameters(self, ends: Shape, channels: int) -> None:
        """The weight, whose first two axes are `ends`, and the bias. channels: of the input."""
        fans = channels // self.groups * self.window.taps, self.nb_kernels * self.window.taps
        self.add_parameter("weight", (*ends, *self.window.kernel), self.weight_init, fans, layout="filters")
        if self.use_bias:
            self.add_parameter("bias", (self.nb_kernels,), self.bias_init)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, *extents) -> (n, nb_kernels, *how many windows fit)."""
        y = autograd.conv2d(
            as_images(x),
            self.parameters["weight"],
            self.parameters["bias"] if self.use_bias else None,
            stride=self.window.stride,
            pad=self.window.pad,
            dilation=self.window.dilation,
            groups=self.groups,
        )
        return activated(self.activation, as_samples(y, before=x), 1)
