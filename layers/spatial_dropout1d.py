"""SpatialDropout1D: zeros in whole channels of sequences, at random while training."""

from __future__ import annotations

from ._spatial_dropout import SpatialDropout
from ._windows import SEQUENCE


class SpatialDropout1D(SpatialDropout):
    """In training each channel of each sequence is set to 0 with probability p, else divided by 1 - p; else y = x
    (Tompson and others, arXiv 1411.4280).

    Input and output samples (channels, length). State: random uint64 (3,), as of Dropout.

    p: the probability to drop, from 0 to below 1.
    """

    axes = SEQUENCE
