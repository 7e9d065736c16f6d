"""The `storage` option: a layer whose tensors are stored in 16 bits and computed in 32."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np

from singa_lite.array_types import DType
from singa_lite.layer import Layer

from ._checks import where

#: float16 has 5 bits of exponent, from 6e-8 to 65504; bfloat16 has the 8 of float32, and 7 of mantissa.
HALVES = ("float16", "bfloat16")


def storage(layer: Layer, wanted: str | None) -> DType | None:
    """The dtype of that name. ValueError for another one, ImportError where bfloat16's package is missing."""
    if wanted is None:
        return None
    if not isinstance(wanted, str) or wanted not in HALVES:
        raise ValueError(f"{where(layer)}: wanted storage to be one of {HALVES} or None, received {wanted!r}")
    if wanted == "bfloat16" and find_spec("ml_dtypes") is None:
        raise ImportError(f"{where(layer)}: storage='bfloat16' wants NumPy's bfloat16, pip install ml_dtypes")
    return np.dtype(import_module("ml_dtypes").bfloat16 if wanted == "bfloat16" else wanted)
