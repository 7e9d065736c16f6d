"""DepthwiseConv2D: each channel convolved by kernels of its own."""

from __future__ import annotations

from singa_lite.layer import initializer
from singa_lite.layer.layer import InputShape
from singa_lite.layers._checks import input_axes, positive_int
from singa_lite.layers._windows import IMAGE, Extents
from singa_lite.layers.activation import Activated
from singa_lite.layers.convolution._convolution import Convolution
from singa_lite.tensor import Shape


class DepthwiseConv2D(Convolution):
    """A Conv2D with a group for each channel: output channel c * depth_multiplier + m sees input channel c alone.

    Input samples (channels, height, width); output samples (channels * depth_multiplier, oh, ow), oh and ow as of
    Conv2D. Parameters: weight (channels * depth_multiplier, 1, kernel height, kernel width), bias (channels *
    depth_multiplier,).

    depth_multiplier: kernels for each channel, at least 1. All others as of Conv2D.
    """

    axes = IMAGE

    def __init__(
        self,
        name: str,
        kernel: Extents = 3,
        stride: Extents = 1,
        border_mode: str = "same",
        pad: Extents | None = None,
        use_bias: bool = True,
        *,
        padding: str | None = None,
        depth_multiplier: int = 1,
        dilation: Extents = 1,
        activation: Activated = None,
        weight_init: initializer.Spec = "glorot_uniform",
        bias_init: initializer.Spec = 0.0,
        input_sample_shape: InputShape | None = None,
    ) -> None:
        super().__init__(
            name,
            1,  # and 1 group, until the channels are known
            kernel,
            stride,
            border_mode,
            pad,
            use_bias,
            padding=padding,
            dilation=dilation,
            activation=activation,
            weight_init=weight_init,
            bias_init=bias_init,
            input_sample_shape=input_sample_shape,
        )
        self.depth_multiplier = positive_int(self, "depth_multiplier", depth_multiplier)

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, height, width) -> (channels * depth_multiplier, oh, ow)."""
        self.groups = input_axes(self, shapes, self.axes)[0]
        self.nb_kernels = self.groups * self.depth_multiplier
        return super().setup(*shapes)
