"""Convolutions over images and sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from singa_lite import autograd
from singa_lite.autograd.ops.low_rank import adapted_conv2d
from singa_lite.common.errors import ShapeError
from singa_lite.layer.lora import LoraForm, adapter_of
from singa_lite.layers._checks import input_axes, label, positive_int
from singa_lite.layers._weighted import WithActivation
from singa_lite.layers._windows import (
    IMAGE,
    PADDINGS,
    SEQUENCE,
    Extents,
    as_images,
    as_samples,
    output_extents,
    padded,
    window,
)
from singa_lite.tensor import Shape, Tensor


class Convolution(WithActivation):
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
        **options: Any,
    ) -> None:
        super().__init__(name, use_bias=use_bias, **options)
        self.nb_kernels = positive_int(self, "nb_kernels", nb_kernels)
        self.groups = positive_int(self, "groups", groups)
        if self.nb_kernels % self.groups:
            raise ValueError(f"{label(self)}: wanted groups to divide the {nb_kernels} kernels, received {groups}")
        self.window = window(
            self, len(self.axes) - 1, kernel, stride, border_mode, pad, dilation, padding, self.paddings
        )
        self.border_mode, self.pad, self.padding = border_mode, pad, padding

    def summary_note(self) -> str:
        """The window and the activation."""
        return ", ".join(filter(None, (str(self.window), self.activation_mode)))

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
        operands = as_images(x), self.parameters["weight"], self.parameters["bias"] if self.use_bias else None
        steps, adapter = (self.window.stride, self.window.pad, self.window.dilation), adapter_of(self, training)
        if adapter is None:
            y = autograd.conv2d(*operands, *steps, groups=self.groups)
        else:
            y = adapted_conv2d(*operands, adapter, steps)
        return self.activated(as_samples(y, before=x), 1)

    def lora_form(self, rank: int) -> LoraForm | None:
        """lora_a (rank, channels, *kernel), lora_b (nb_kernels, rank, 1, 1), as of peft; none beside several groups."""
        if self.groups > 1:
            return None
        channels, kernel = self._prepared_for[0][0], self.window.kernel
        inputs = channels * self.window.taps
        return LoraForm((rank, channels, *kernel), (self.nb_kernels, rank, 1, 1), inputs, "filters")


class Conv1D(Convolution):
    """Convolves sequences, as a Conv2D convolves images of height 1.

    y[k, i] = bias[k] + sum over c, u of weight[k, c, 0, u] * x[c, i * stride + u * dilation - left], x being
    0 outside its length and c running over the channels of k's group.

    Input samples (channels, length); output samples (nb_kernels, ol) with
    ol = (length + left + right - dilation * (kernel - 1) - 1) // stride + 1.
    Parameters: weight (nb_kernels, channels / groups, 1, kernel), bias (nb_kernels,).

    kernel, stride, dilation: int, at least 1. pad: int or (left, right). padding: also "causal", which pads before the
    first element alone. All others as of Conv2D, along one axis.

    >>> net = Sequential([layers.Input((3, 10)), layers.Conv1D("conv", 5, kernel=3, padding="causal")])
    >>> net.predict(np.ones((2, 3, 10), "float32")).shape
    (2, 5, 10)
    """

    axes = SEQUENCE
    paddings = (*PADDINGS, "causal")


class Conv2D(Convolution):
    """Convolves images (cross-correlation, as everywhere in the field):

    y[k, i, j] = bias[k] + sum over c, u, v of weight[k, c, u, v] * x[c, i * stride + u * dilation - top, j *
    stride + v * dilation - left], x being 0 outside its extents and c running over the channels of k's group.

    Input samples (channels, height, width); output samples (nb_kernels, oh, ow) with
    oh = (height + top + bottom - dilation * (kernel - 1) - 1) // stride + 1, ow likewise.
    Parameters: weight (nb_kernels, channels / groups, kernel height, kernel width), bias (nb_kernels,).

    kernel, stride, dilation: int or pair (height, width), at least 1. border_mode: "same" pads dilation * (kernel
    // 2) on every side and wants odd kernels, "valid" pads nothing. pad: sets it outright, int, (height, width) or
    (top, bottom, left, right). padding: Keras's, in the place of both: "same" makes ceil(height / stride) x
    ceil(width / stride) windows, with an odd row or column of zeros behind, "valid" pads nothing. groups: divides
    channels and nb_kernels; equal to channels, it makes the convolution depthwise. activation: as of Dense, softmax
    of the channels. weight_init, bias_init: an Initializer, its name, or a number.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.Conv2D("conv", 5, kernel=3, stride=2, activation="relu")])
    >>> net.predict(np.ones((2, 3, 8, 6), "float32")).shape
    (2, 5, 3, 2)
    """

    axes = IMAGE


class DepthwiseConv2D(Convolution, without=("nb_kernels", "groups")):
    """Convolves each channel alone: output channel c * depth_multiplier + m sees input channel c.

    Input samples (channels, height, width); output samples (channels * depth_multiplier, oh, ow), oh and ow as of
    Conv2D. Parameters: weight (channels * depth_multiplier, 1, kernel height, kernel width), bias (channels *
    depth_multiplier,).

    depth_multiplier: kernels for each channel, at least 1. All others as of Conv2D.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.DepthwiseConv2D("conv", kernel=3, depth_multiplier=2)])
    >>> net.parameters()["conv/weight"].shape
    (6, 1, 3, 3)
    """

    axes = IMAGE

    def __init__(self, name: str, *args: Any, depth_multiplier: int = 1, **options: Any) -> None:
        super().__init__(name, 1, *args, **options)  # and 1 group, until the channels are known
        self.depth_multiplier = positive_int(self, "depth_multiplier", depth_multiplier)

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, height, width) -> (channels * depth_multiplier, oh, ow)."""
        self.groups = input_axes(self, shapes, self.axes)[0]
        self.nb_kernels = self.groups * self.depth_multiplier
        return super().setup(*shapes)
