"""Derivatives of samples that do not count."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array

#: Samples at a time, as NumPy allocates the numbers of those that are found.
_SAMPLES = 4096


def clear_unweighted(dlosses: Array, dx: Array) -> None:
    """dx = 0 of each sample whose dlosses is 0: NaN times 0 would be NaN. dlosses: (n,); dx: (n, ...)."""
    for start in range(0, len(dlosses), _SAMPLES):
        some = slice(start, start + _SAMPLES)
        found = np.flatnonzero(dlosses[some] == 0)
        if found.size:
            dx[some][found] = 0
