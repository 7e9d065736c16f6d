"""Conv1D: convolution over sequences."""

from __future__ import annotations

from singa_lite.layers._windows import PADDINGS, SEQUENCE
from singa_lite.layers.convolution._convolution import Convolution


class Conv1D(Convolution):
    """Convolution over sequences: the Conv2D of images of height 1.

    y[k, i] = bias[k] + sum over c, u of weight[k, c, 0, u] * x[c, i * stride + u * dilation - left], x being
    0 outside its length and c running over the channels of k's group.

    Input samples (channels, length); output samples (nb_kernels, ol) with
    ol = (length + left + right - dilation * (kernel - 1) - 1) // stride + 1.
    Parameters: weight (nb_kernels, channels / groups, 1, kernel), bias (nb_kernels,).

    kernel, stride, dilation: int, at least 1. border_mode: "same" pads dilation * (kernel // 2) on both sides and
    wants odd kernels, "valid" pads nothing. pad: sets it outright, int or (left, right). padding: Keras's, in the
    place of both: "same" makes ceil(length / stride) windows, an odd pad at the end, "causal" pads before the first
    element alone, "valid" pads nothing. groups: divides channels and nb_kernels. activation: as of Dense, softmax
    of the channels. weight_init, bias_init: an Initializer, its name, or a number.
    """

    axes = SEQUENCE
    paddings = (*PADDINGS, "causal")
