"""Activations of gates in place, by functions of NumPy's, and their derivatives from their results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from singa_lite.common.array_types import Array


def sigmoid(x: Array) -> None:
    """x = 1 / (1 + e**-x), as tanh(x / 2) / 2 + 1/2: NumPy has vector instructions for that, and it never overflows."""
    np.multiply(x, 0.5, out=x)
    np.tanh(x, out=x)
    np.multiply(x, 0.5, out=x)
    np.add(x, 0.5, out=x)


def hard_sigmoid(x: Array) -> None:
    """x = x / 6 + 1/2, at least 0 and at most 1."""
    np.multiply(x, 1 / 6, out=x)
    np.add(x, 0.5, out=x)
    np.maximum(x, 0, out=x)
    np.minimum(x, 1, out=x)


def tanh(x: Array) -> None:
    """x = tanh(x)."""
    np.tanh(x, out=x)


def relu(x: Array) -> None:
    """x = max(x, 0); NaN stays NaN."""
    np.maximum(x, 0, out=x)


#: In place, by name.
APPLY: dict[str, Callable[[Array], object]] = {
    "sigmoid": sigmoid,
    "hard_sigmoid": hard_sigmoid,
    "tanh": tanh,
    "relu": relu,
}


def sigmoid_slopes(y: Array, slopes: Array) -> None:
    """slopes = y * (1 - y)."""
    np.subtract(1, y, out=slopes)
    np.multiply(slopes, y, out=slopes)


def hard_sigmoid_slopes(y: Array, slopes: Array) -> None:
    """slopes = 1 / 6 where y is between 0 and 1, else 0; NaN where y is."""
    sigmoid_slopes(y, slopes)
    np.sign(slopes, out=slopes)
    np.multiply(slopes, 1 / 6, out=slopes)


def tanh_slopes(y: Array, slopes: Array) -> None:
    """slopes = 1 - y**2."""
    np.multiply(y, y, out=slopes)
    np.subtract(1, slopes, out=slopes)


def relu_slopes(y: Array, slopes: Array) -> None:
    """slopes = 1 where y is above 0, else 0."""
    np.sign(y, out=slopes)


#: The slope of an activation at its input, from its result y, by name.
SLOPES: dict[str, Callable[[Array, Array], None]] = {
    "sigmoid": sigmoid_slopes,
    "hard_sigmoid": hard_sigmoid_slopes,
    "tanh": tanh_slopes,
    "relu": relu_slopes,
}
