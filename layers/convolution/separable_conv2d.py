"""SeparableConv2D: a depthwise convolution, and a mixture of its channels."""

from __future__ import annotations

from typing import Any

from singa_lite.layers._checks import input_axes
from singa_lite.layers._weighted import WithActivation
from singa_lite.layers._windows import IMAGE, Extents, check_padding
from singa_lite.layers.convolution.convolution import Conv2D, DepthwiseConv2D
from singa_lite.tensor import Shape, Tensor


class SeparableConv2D(WithActivation):
    """Computes a 1 x 1 Conv2D of nb_kernels over a DepthwiseConv2D of x without a bias (Chollet, arXiv 1610.02357).

    Input samples (channels, height, width); output samples (nb_kernels, oh, ow), oh and ow as of Conv2D. Layers
    inside: depthwise, with depth_multiplier kernels for each channel, and pointwise, which has the bias.

    kernel, stride, border_mode, pad, padding, dilation: of the depthwise convolution, as of Conv2D. use_bias,
    bias_init: of the pointwise one. activation: of the sum, as of Conv2D. weight_init: of both, an Initializer, its
    name, or a number.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.SeparableConv2D("conv", 5, kernel=3)])
    >>> sorted(net.parameters())
    ['conv/depthwise/weight', 'conv/pointwise/bias', 'conv/pointwise/weight']
    """

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
        depth_multiplier: int = 1,
        dilation: Extents = 1,
        **options: Any,
    ) -> None:
        super().__init__(name, use_bias=use_bias, **options)
        pads: dict[str, Any] = {"border_mode": border_mode, "pad": pad}
        if padding is not None:
            check_padding(self, padding)
            pads = {"padding": padding}
        self._depthwise = self.add_layer(
            DepthwiseConv2D(
                "depthwise",
                kernel,
                stride,
                use_bias=False,
                **pads,
                depth_multiplier=depth_multiplier,
                dilation=dilation,
                weight_init=self.weight_init,
            )
        )
        self._pointwise = self.add_layer(Conv2D("pointwise", nb_kernels, 1, **self.weight_options))
        self.nb_kernels, self.window = self._pointwise.nb_kernels, self._depthwise.window

    def summary_note(self) -> str:
        """The window and the activation."""
        return ", ".join(filter(None, (str(self.window), self.activation_mode)))

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, height, width) -> (nb_kernels, oh, ow)."""
        deep = self.set_up(self._depthwise, input_axes(self, shapes, IMAGE))
        self.window = self._depthwise.window
        return self.set_up(self._pointwise, deep)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, height, width) -> (n, nb_kernels, oh, ow)."""
        y = self.run(self._pointwise, training, self.run(self._depthwise, training, x))
        return self.activated(y, 1)
