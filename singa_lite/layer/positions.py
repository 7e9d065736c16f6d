"""Tables of positions in a sequence, as NumPy arrays: for layers that keep them as state."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.checks import above_zero, integer


def rotary_table(time: int, size: int, base: float = 10000.0) -> Array:
    """Cosines and sines of position * base**(-2 * i / size), as `autograd.rotary` takes them (arXiv 2104.09864).

    float64 (2, time, size / 2); size: of the features that are turned, even.
    """
    angles = _angles("rotary_table", time, size, base)
    return np.stack([np.cos(angles), np.sin(angles)])


def sinusoidal_table(time: int, size: int, base: float = 10000.0) -> Array:
    """sin(position * base**(-2 * i / size)) at feature 2 * i and the cosine behind it (Vaswani, arXiv 1706.03762, 3.5).

    float64 (time, size); size: even.
    """
    angles = _angles("sinusoidal_table", time, size, base)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(time, size)


def _angles(where: str, time: int, size: int, base: float) -> Array:
    """(time, size / 2)."""
    time, size = integer(f"{where} time", time, 1), integer(f"{where} size", size, 2)
    if size % 2:
        raise ValueError(f"{where} size: wanted an even number, received {size}")
    rates = above_zero(f"{where} base", base) ** (-np.arange(0, size, 2) / size)
    angles: Array = np.arange(time)[:, None] * rates
    return angles
