"""Element by element. Kernels of several passes go block by block: each pass finds its block in the cache."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels import activation as activations
from singa_lite.kernels.numpy_kernels.scratch import RULES, Bytes, Shaped, blocks, scratch


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


def activate(y: Array, activation: str, scratch: Bytes) -> None:
    """y = activation(y). scratch: `activation_bytes` or more."""
    if activation:
        function = getattr(activations, activation)
        given = {"scratch": scratch[: RULES[function](y, y)]} if function in RULES else {}
        function(y, y, **given)


def activation_bytes(y: Shaped, activation: str) -> int:
    """Bytes of scratch of the activation alone."""
    function = getattr(activations, activation) if activation else None
    return RULES[function](y, y) if function in RULES else 0
