"""MaxPooling2D: largest element of windows over images."""

from __future__ import annotations

from singa_lite.layers._windows import IMAGE
from singa_lite.layers.pooling._pooling import MaxPooling


class MaxPooling2D(MaxPooling):
    """The largest element of each window over images; padding never wins, and of equals the first does.

    Input samples (channels, height, width); output samples (channels, oh, ow) with
    oh = (height + top + bottom - kernel) // stride + 1, ow likewise.

    kernel, stride: int or pair (height, width), at least 1, by default 3 and 2. border_mode: "same" pads kernel //
    2 on every side and wants odd kernels, "valid" pads nothing. pad: sets it outright, int, (height, width) or
    (top, bottom, left, right), each below the kernel's extent. padding: Keras's, in the place of both: "same" makes
    ceil(height / stride) x ceil(width / stride) windows, an odd pad behind, "valid" pads nothing; kernel and stride
    are 2 and the kernel then, unless given.
    ceil_mode: PyTorch's: what is left at the end is pooled too; the division above is rounded up, but a window
    must begin inside the image or the padding before it.
    """

    axes = IMAGE
