"""Transposed convolutions: from small images and short sequences to larger ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from singa_lite import autograd
from singa_lite.autograd.ops.convolution import extra_extents, transposed_extents
from singa_lite.kernels.interface.window import Pad, Pair, Window
from singa_lite.layers._checks import label
from singa_lite.layers._windows import IMAGE, SEQUENCE, Extents, as_image, as_images, as_samples
from singa_lite.layers.convolution.convolution import Convolution
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

    def __init__(self, *args: Any, output_padding: Extents | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        rows, columns = self.window.stride
        self.output_padding = (rows - 1, columns - 1) if self.border_mode == "same" and self.pad is None else (0, 0)
        if self.padding is not None:
            self._take_padding(self.padding, output_padding)
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
        return self.activated(as_samples(y, before=x), 1)

    def lora_form(self, rank: int) -> None:
        """None, as peft has none."""


class Conv1DTranspose(TransposedConvolution):
    """Convolves sequences transposed, as a Conv2DTranspose does images of height 1.

    Input samples (channels, length); output samples (nb_kernels, ol) with PyTorch's
    ol = (length - 1) * stride - left - right + dilation * (kernel - 1) + output_padding + 1.
    Parameters: weight (channels, nb_kernels / groups, 1, kernel), bias (nb_kernels,).

    kernel, stride, dilation: int, at least 1. pad: int or (left, right). output_padding: steps at the end, from 0 to
    below the stride. All others as of Conv2DTranspose, along one axis.

    >>> net = Sequential([layers.Input((3, 10)), layers.Conv1DTranspose("up", 5, kernel=3, stride=2)])
    >>> net.predict(np.ones((2, 3, 10), "float32")).shape
    (2, 5, 20)
    """

    axes = SEQUENCE


class Conv2DTranspose(TransposedConvolution):
    """Convolves images transposed, by the derivative of a Conv2D by its image (arXiv 1603.07285). Each pixel of the
    input is multiplied by the kernels, and these products are added where the window lies:

    y[k, i, j] = bias[k] + sum of x[c, a, b] * weight[c, k, u, v] over c, a, b, u, v with a * stride + u * dilation -
    top = i and b * stride + v * dilation - left = j, c running over the channels of k's group.

    Input samples (channels, height, width); output samples (nb_kernels, oh, ow) with PyTorch's
    oh = (height - 1) * stride - top - bottom + dilation * (kernel - 1) + output_padding + 1, ow likewise.
    Parameters: weight (channels, nb_kernels / groups, kernel height, kernel width), bias (nb_kernels,).

    kernel, stride, dilation: int or pair (height, width), at least 1. border_mode: "same" cuts dilation * (kernel
    // 2) off every side and wants odd kernels, "valid" cuts off nothing. pad: sets it outright, int, (height,
    width) or (top, bottom, left, right). output_padding: rows at the bottom and columns at the right, int or pair,
    from 0 to below the stride; by default stride - 1 with border_mode "same", which makes the image `stride` times
    as large, else 0. padding: Keras's, in the place of these three: "same" makes the image `stride` times as large
    whatever the kernel, "valid" leaves all that the kernels reach, and `stride` pixels for each of the input at
    least. groups: divides channels and nb_kernels. activation: as of Dense, softmax of the channels. weight_init,
    bias_init: an Initializer, its name, or a number.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.Conv2DTranspose("up", 5, kernel=3, stride=2)])
    >>> net.predict(np.ones((2, 3, 8, 6), "float32")).shape
    (2, 5, 16, 12)
    """

    axes = IMAGE
