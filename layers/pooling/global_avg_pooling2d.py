"""GlobalAvgPooling2D: average of each channel's whole image."""

from __future__ import annotations

from singa_lite.layers._windows import IMAGE
from singa_lite.layers.pooling._global_pooling import GlobalAvgPooling


class GlobalAvgPooling2D(GlobalAvgPooling):
    """The average of each channel's whole image (Lin, Chen and Yan, arXiv 1312.4400).

    Input samples (channels, height, width); output samples (channels,).
    """

    axes = IMAGE
