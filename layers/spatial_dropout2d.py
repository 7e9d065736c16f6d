"""SpatialDropout2D: zeros in whole channels of images, at random while training."""

from __future__ import annotations

from ._spatial_dropout import SpatialDropout
from ._windows import IMAGE


class SpatialDropout2D(SpatialDropout):
    """Sets each channel of each image to 0 with probability p in training, else divides it by 1 - p. Outside training y
    = x (Tompson and others, arXiv 1411.4280).

    Input and output samples (channels, height, width). State: random uint64 (3,), as of Dropout.

    p: the probability to drop, from 0 to below 1.
    """

    axes = IMAGE
