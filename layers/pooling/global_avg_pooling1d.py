"""GlobalAvgPooling1D: average of each channel's whole sequence."""

from __future__ import annotations

from singa_lite.layers._windows import SEQUENCE
from singa_lite.layers.pooling._global_pooling import GlobalAvgPooling


class GlobalAvgPooling1D(GlobalAvgPooling):
    """The average of each channel's whole sequence. Of samples (time, features) it takes Permute(name, (2, 1)) before.

    Input samples (channels, length); output samples (channels,).
    """

    axes = SEQUENCE
