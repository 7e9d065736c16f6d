"""Normal numbers as a GPU draws them, in float64: NumPy's Philox, each element's numbers by its index."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from kernel_case import Tensors
from singa_lite.kernels.kernel_set import KernelSet

NORMALS = ("normal", "truncated_normal")
_STANDARD = NormalDist()
_INVERSE = np.frompyfunc(_STANDARD.inv_cdf, 1, 1)


def draws_by_index(kernels: KernelSet) -> bool:
    """Whether the set draws these in the place of NumPy's: that of a GPU does."""
    return kernels.name.startswith(("cuda", "gpu"))


def philox(key: np.ndarray) -> np.random.Philox:
    """What the interface says that a key stands for."""
    return np.random.Philox(key=key[:2].copy(), counter=np.array([0, 0, 0, key[2]], np.uint64))


def drawn(name: str, tensors: Tensors, settings: dict[str, Any]) -> Tensors:
    """The key and y of a call, y in float64."""
    key, y = tensors
    assert key is not None and y is not None
    single = y.dtype != np.float64
    numbers = (_normal if name == "normal" else _truncated)(philox(key), y.size, single)
    return [key.copy(), settings["mean"] + settings["std"] * numbers.reshape(y.shape)]


def _normal(source: np.random.Philox, size: int, single: bool) -> np.ndarray:
    """Two of two uniform numbers (Box and Muller, 1958): of halves of words, the low one first, or of words."""
    pairs = -(-size // 2)
    if single:
        halves = source.random_raw(pairs).view(np.uint32).reshape(pairs, 2).astype(np.float32)
        u, v = (halves[:, 0] + np.float32(1)) * 2.0**-32, halves[:, 1] * 2.0**-32
    else:
        words = (source.random_raw(2 * pairs) >> np.uint64(11)).reshape(pairs, 2).astype(np.float64)
        u, v = (words[:, 0] + 1) * 2.0**-53, words[:, 1] * 2.0**-53
    length, turn = np.sqrt(-2 * np.log(u.astype(np.float64))), 2 * np.pi * v.astype(np.float64)
    return np.stack([length * np.cos(turn), length * np.sin(turn)], axis=1).reshape(-1)[:size]


def _truncated(source: np.random.Philox, size: int, single: bool) -> np.ndarray:
    """The inverse of the cumulative distribution, of uniform numbers between its values at -2 and 2."""
    numbers = np.random.Generator(source).random(size, np.float32 if single else np.float64).astype(np.float64)
    low, high = _STANDARD.cdf(-2), _STANDARD.cdf(2)
    return np.clip(_INVERSE(low + (high - low) * numbers).astype(np.float64), -2, 2)
