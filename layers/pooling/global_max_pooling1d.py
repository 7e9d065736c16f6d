"""GlobalMaxPooling1D: largest element of each channel's whole sequence."""

from __future__ import annotations

from singa_lite.layers._windows import SEQUENCE
from singa_lite.layers.pooling._global_pooling import GlobalMaxPooling


class GlobalMaxPooling1D(GlobalMaxPooling):
    """The largest element of each channel's whole sequence; of equals the first gets the derivative. Of samples (time,
    features) it takes Permute(name, (2, 1)) before.

    Input samples (channels, length); output samples (channels,).
    """

    axes = SEQUENCE
