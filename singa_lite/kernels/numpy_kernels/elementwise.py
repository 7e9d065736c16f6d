"""Element by element. Kernels of several passes go block by block: each pass finds its block in the cache."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.activated import activate, activation_bytes
from singa_lite.kernels.numpy_kernels.scratch import Bytes, blocks, scratch


@scratch(lambda a, b, y, *, activation="": activation_bytes(y, activation))
def add(a: Array, b: Array, y: Array, *, activation: str = "", scratch: Bytes) -> None:
    """y = a + b, then the activation in place."""
    np.add(a, b, out=y)
    activate(y, activation, scratch)


def scale(x: Array, y: Array, *, alpha: float, beta: float) -> None:
    """y = alpha * x + beta."""
    for xb, yb in blocks(np.broadcast_to(x, y.shape), y):
        np.multiply(xb, alpha, out=yb)
        if beta != 0:
            np.add(yb, beta, out=yb)
