"""Conv1DTranspose: convolution from short sequences to long ones."""

from __future__ import annotations

from singa_lite.layers._windows import SEQUENCE
from singa_lite.layers.convolution._transposed_convolution import TransposedConvolution


class Conv1DTranspose(TransposedConvolution):
    """Transposed convolution over sequences: the Conv2DTranspose of images of height 1.

    Input samples (channels, length); output samples (nb_kernels, ol) with PyTorch's
    ol = (length - 1) * stride - left - right + dilation * (kernel - 1) + output_padding + 1.
    Parameters: weight (channels, nb_kernels / groups, 1, kernel), bias (nb_kernels,).

    kernel, stride, dilation: int, at least 1. border_mode: "same" cuts dilation * (kernel // 2) off both sides and
    wants odd kernels, "valid" cuts off nothing. pad: sets it outright, int or (left, right). output_padding: steps
    at the end, from 0 to below the stride; by default stride - 1 with border_mode "same", else 0. padding: Keras's,
    in the place of these three, as of Conv2DTranspose. groups: divides channels and nb_kernels. activation: as of
    Dense, softmax of the channels. weight_init, bias_init: an Initializer, its name, or a number.
    """

    axes = SEQUENCE
