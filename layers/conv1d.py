"""Conv1D: convolution over sequences."""

from __future__ import annotations

from ._convolution import Convolution
from ._windows import SEQUENCE


class Conv1D(Convolution):
    """Convolution over sequences: the Conv2D of images of height 1.

    y[k, i] = bias[k] + sum over c, u of weight[k, c, 0, u] * x[c, i * stride + u * dilation - left], x being
    0 outside its length and c running over the channels of k's group.

    Input samples (channels, length); output samples (nb_kernels, ol) with
    ol = (length + left + right - dilation * (kernel - 1) - 1) // stride + 1.
    Parameters: weight (nb_kernels, channels / groups, 1, kernel), bias (nb_kernels,).

    kernel, stride, dilation: int, at least 1. border_mode: "same" pads dilation * (kernel // 2) on both sides
    and wants odd kernels, "valid" pads nothing, "causal" pads dilation * (kernel - 1) on the left alone, so that no
    output sees what comes later in the sequence (with stride 1, output i sees inputs up to i). pad: sets it outright,
    int or (left, right). groups: divides channels and nb_kernels. weight_init, bias_init: an Initializer, its name, or
    a number.
    """

    axes = SEQUENCE
    border_modes = ("same", "valid", "causal")
