"""AvgPooling2D: average of windows over images."""

from __future__ import annotations

from singa_lite.layers._windows import IMAGE
from singa_lite.layers.pooling._pooling import AvgPooling


class AvgPooling2D(AvgPooling):
    """The average of each window over images.

    Input samples (channels, height, width); output samples (channels, oh, ow) with
    oh = (height + top + bottom - kernel) // stride + 1, ow likewise.

    kernel, stride: int or pair (height, width), at least 1, by default 3 and 2. border_mode: "same" pads kernel //
    2 on every side and wants odd kernels, "valid" pads nothing. pad: sets it outright, int, (height, width) or
    (top, bottom, left, right), each below the kernel's extent. padding: Keras's, in the place of both: "same" makes
    ceil(height / stride) x ceil(width / stride) windows, an odd pad behind, "valid" pads nothing; kernel and stride
    are 2 and the kernel then, unless given. count_pad: True divides every window's sum by the kernel's area, False
    by the number of its elements inside the image; None is True, with `padding` False, as in Keras.
    ceil_mode: PyTorch's: what is left at the end is pooled too; the division above is rounded up, but a window
    must begin inside the image or the padding before it. What lies behind all padding does not count.
    """

    axes = IMAGE
