"""Conv2D: convolution over images."""

from __future__ import annotations

from singa_lite.layers._windows import IMAGE
from singa_lite.layers.convolution._convolution import Convolution


class Conv2D(Convolution):
    """Convolution over images (cross-correlation, as everywhere in the field):

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
    """

    axes = IMAGE
