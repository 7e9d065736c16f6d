"""Conv2DTranspose: convolution from small images to large ones."""

from __future__ import annotations

from singa_lite.layers._windows import IMAGE
from singa_lite.layers.convolution._transposed_convolution import TransposedConvolution


class Conv2DTranspose(TransposedConvolution):
    """Transposed convolution over images: the derivative of a Conv2D by its image (arXiv 1603.07285). Each pixel of the
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
    """

    axes = IMAGE
