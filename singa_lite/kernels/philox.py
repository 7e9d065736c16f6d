"""The generator that a key of random numbers stands for, from any of its numbers on."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array

#: Numbers of float32 that one count of the generator gives: four words of 64 bits.
NUMBERS = 8


def generator(key: Array, count: int = 0) -> np.random.Generator:
    """NumPy's Philox of a key (seed, stream, counter), behind the first `count` times NUMBERS numbers of float32."""
    counter = np.array([count, 0, 0, key[2]], np.uint64)
    return np.random.Generator(np.random.Philox(key=np.array(key[:2]), counter=counter))
