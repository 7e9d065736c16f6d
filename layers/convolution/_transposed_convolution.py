"""Base of the transposed convolution layers: all but the number of axes."""

from __future__ import annotations

from dataclasses import replace

from singa_lite import autograd
from singa_lite.autograd.ops.convolution import extra_extents, transposed_extents
from singa_lite.kernels.interface.window import Pad, Pair, Window
from singa_lite.layer import initializer
from singa_lite.layer.layer import InputShape
from singa_lite.layers._checks import label
from singa_lite.layers._windows import Extents, as_image, as_images, as_samples
from singa_lite.layers.convolution._convolution import Convolution
from singa_lite.tensor import Shape, Tensor


def keras_pads(window: Window, padding: str) -> tuple[Pad, Pair]:
    """What Keras's `padding` cuts off, and what it adds at the bottom and the right."""
    (down, across), (height, width) = window.stride, window.span
    rows, columns = (max(height - down, 0), max(width - across, 0)) if padding == "same" else (0, 0)
    pad = (rows // 2, rows - rows // 2, columns // 2, columns - columns // 2)
    return pad, (max(down - height, 0), max(across - width, 0))


class TransposedConvolution(Convolution):
    """A transposed convolution: the derivative of a convolution by its input, as a forward operation. A subclass names
    the `axes`.
    """

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
        output_padding: Extents | None = None,
        groups: int = 1,
        dilation: Extents = 1,
        weight_init: initializer.Spec = "glorot_uniform",
        bias_init: initializer.Spec = 0.0,
        input_sample_shape: InputShape | None = None,
    ) -> None:
        super().__init__(
            name,
            nb_kernels,
            kernel,
            stride,
            border_mode,
            pad,
            use_bias,
            padding=padding,
            groups=groups,
            dilation=dilation,
            weight_init=weight_init,
            bias_init=bias_init,
            input_sample_shape=input_sample_shape,
        )
        rows, columns = self.window.stride
        self.output_padding = (rows - 1, columns - 1) if border_mode == "same" and pad is None else (0, 0)
        if padding is not None:
            self._take_padding(padding, output_padding)
        elif output_padding is not None:
            self.output_padding = extra_extents(label(self), output_padding, self.window.stride, len(self.axes) - 1)

    def _take_padding(self, padding: str, output_padding: object) -> None:
        """Cut off, and add, what makes the image `stride` times as large; "valid" leaves all that the kernels reach."""
        if output_padding is not None:
            raise ValueError(f"{label(self)}: wanted padding or output_padding, received both")
        pad, self.output_padding = keras_pads(self.window, padding)
        self.window = replace(self.window, pad=pad)

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, *extents) -> (nb_kernels, *extents of the image that a convolution would make it of)."""
        channels, *extents = self.grouped_input(shapes)
        height, width = as_image(extents)
        counts = transposed_extents(label(self), self.window, (height, width), self.output_padding)
        self.add_parameters((channels, self.nb_kernels // self.groups), channels)
        return (self.nb_kernels, *counts[2 - len(extents) :])

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, *extents) -> (n, nb_kernels, *extents)."""
        y = autograd.conv2d_transpose(
            as_images(x),
            self.parameters["weight"],
            self.parameters["bias"] if self.use_bias else None,
            stride=self.window.stride,
            pad=self.window.pad,
            dilation=self.window.dilation,
            groups=self.groups,
            output_padding=self.output_padding,
        )
        return as_samples(y, before=x)
