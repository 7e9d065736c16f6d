"""AvgPooling1D: average of windows over sequences."""

from __future__ import annotations

from singa_lite.layers._windows import SEQUENCE
from singa_lite.layers.pooling._pooling import AvgPooling


class AvgPooling1D(AvgPooling):
    """The average of each window over sequences.

    Input samples (channels, length); output samples (channels, ol) with
    ol = (length + left + right - kernel) // stride + 1.

    kernel, stride: int, at least 1, by default 3 and 2. border_mode: "same" pads kernel // 2 on both sides and
    wants odd kernels, "valid" pads nothing. pad: sets it outright, int or (left, right), each below the kernel.
    padding: Keras's, in the place of both: "same" makes ceil(length / stride) windows, an odd pad at the end,
    "valid" pads nothing; kernel and stride are 2 and the kernel then, unless given. count_pad: True divides every
    window's sum by the kernel, False by the number of its elements inside the sequence; None is True, with
    `padding` False, as in Keras.
    ceil_mode: PyTorch's: what is left at the end is pooled too; the division above is rounded up, but a window
    must begin inside the sequence or the padding before it. What lies behind all padding does not count.
    """

    axes = SEQUENCE
