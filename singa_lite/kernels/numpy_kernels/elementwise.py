"""Element by element. Kernels of several passes go block by block: each pass finds its block in the cache."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.activated import activate, activation_bytes
from singa_lite.kernels.numpy_kernels.scratch import Bytes, blocks, scratch


def copy(x: Array, y: Array) -> None:
    """y = x, broadcast and converted."""
    np.copyto(y, x, casting="unsafe")


def fill(y: Array, *, value: float) -> None:
    """y = value."""
    y.fill(value)


@scratch(lambda a, b, y, *, activation="": activation_bytes(y, activation))
def add(a: Array, b: Array, y: Array, *, activation: str = "", scratch: Bytes) -> None:
    """y = a + b, then the activation in place."""
    np.add(a, b, out=y)
    activate(y, activation, scratch)


def subtract(a: Array, b: Array, y: Array) -> None:
    """y = a - b."""
    np.subtract(a, b, out=y)


def multiply(a: Array, b: Array, y: Array) -> None:
    """y = a * b."""
    np.multiply(a, b, out=y)


def divide(a: Array, b: Array, y: Array) -> None:
    """y = a / b; a division by 0 gives inf or NaN in silence, as on every other device."""
    with np.errstate(all="ignore"):
        np.divide(a, b, out=y)


def scale(x: Array, y: Array, *, alpha: float, beta: float) -> None:
    """y = alpha * x + beta."""
    for xb, yb in blocks(np.broadcast_to(x, y.shape), y):
        np.multiply(xb, alpha, out=yb)
        if beta != 0:
            np.add(yb, beta, out=yb)


#: Exponents that have a function of their own, several times as fast as `np.power`.
POWERS: dict[float, np.ufunc] = {0.5: np.sqrt, 1.0: np.positive, 2.0: np.square, -1.0: np.reciprocal}


def power(x: Array, y: Array, *, exponent: float) -> None:
    """y = x ** exponent; inf or NaN in silence where there is no finite result."""
    with np.errstate(all="ignore"):
        if exponent in POWERS:
            POWERS[exponent](x, out=y)
        else:
            np.power(x, exponent, out=y)


def exp(x: Array, y: Array) -> None:
    """y = e ** x; inf in silence where that is too large for the dtype."""
    with np.errstate(all="ignore"):
        np.exp(x, out=y)


def log(x: Array, y: Array) -> None:
    """y = log(x); -inf at 0 and NaN below, in silence."""
    with np.errstate(all="ignore"):
        np.log(x, out=y)


def differs(x: Array, y: Array, *, value: int) -> None:
    """y = 1 where x is not `value`."""
    np.not_equal(x, value, out=y)


def flip(x: Array, y: Array, *, axes: tuple[int, ...]) -> None:
    """y = x reversed along the axes."""
    np.copyto(y, np.flip(x, axes))
