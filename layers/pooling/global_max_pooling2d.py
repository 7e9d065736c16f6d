"""GlobalMaxPooling2D: largest element of each channel's whole image."""

from __future__ import annotations

from singa_lite.layers._windows import IMAGE
from singa_lite.layers.pooling._global_pooling import GlobalMaxPooling


class GlobalMaxPooling2D(GlobalMaxPooling):
    """The largest element of each channel's whole image; of equals the first gets the derivative.

    Input samples (channels, height, width); output samples (channels,).
    """

    axes = IMAGE
