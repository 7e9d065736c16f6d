"""MaxPooling1D: largest element of windows over sequences."""

from __future__ import annotations

from singa_lite.layers._windows import SEQUENCE
from singa_lite.layers.pooling._pooling import MaxPooling


class MaxPooling1D(MaxPooling):
    """The largest element of each window over sequences; padding never wins, and of equals the first does.

    Input samples (channels, length); output samples (channels, ol) with
    ol = (length + left + right - kernel) // stride + 1.

    kernel, stride: int, at least 1, by default 3 and 2. border_mode: "same" pads kernel // 2 on both sides and
    wants odd kernels, "valid" pads nothing. pad: sets it outright, int or (left, right), each below the kernel.
    padding: Keras's, in the place of both: "same" makes ceil(length / stride) windows, an odd pad at the end,
    "valid" pads nothing; kernel and stride are 2 and the kernel then, unless given.
    ceil_mode: PyTorch's: what is left at the end is pooled too; the division above is rounded up, but a window
    must begin inside the sequence or the padding before it.
    """

    axes = SEQUENCE
