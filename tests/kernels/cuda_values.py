"""Values and shapes that tests of the CUDA kernels share."""

from __future__ import annotations

from typing import Any

import numpy as np

NAN, INF = np.nan, np.inf


def normal(*shape: int, seed: int = 3, dtype: Any = np.float32) -> np.ndarray:
    """Normal numbers, the same at each call."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
