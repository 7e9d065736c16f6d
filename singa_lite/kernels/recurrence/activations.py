"""Activations of gates in place, by functions of NumPy's, and their derivatives from their results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from singa_lite.array_types import Array


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


def sigmoid_slope(y: Array, dy: Array, part: Array) -> None:
    """dy = dy * y * (1 - y)."""
    np.subtract(1, y, out=part)
    np.multiply(part, y, out=part)
    np.multiply(dy, part, out=dy)


def hard_sigmoid_slope(y: Array, dy: Array, part: Array) -> None:
    """dy = dy / 6 where y is between 0 and 1, else 0. part: 1 there, 0 elsewhere, NaN where y is."""
    np.subtract(1, y, out=part)
    np.multiply(part, y, out=part)
    np.sign(part, out=part)
    np.multiply(part, 1 / 6, out=part)
    np.multiply(dy, part, out=dy)


def tanh_slope(y: Array, dy: Array, part: Array) -> None:
    """dy = dy * (1 - y**2)."""
    np.multiply(y, y, out=part)
    np.subtract(1, part, out=part)
    np.multiply(dy, part, out=dy)


def relu_slope(y: Array, dy: Array, part: Array) -> None:
    """dy = dy where y is above 0, else 0."""
    np.sign(y, out=part)
    np.multiply(dy, part, out=dy)


#: dy by the input of an activation from its result y, in place, by name. part: a buffer of their shape.
SLOPES: dict[str, Callable[[Array, Array, Array], None]] = {
    "sigmoid": sigmoid_slope,
    "hard_sigmoid": hard_sigmoid_slope,
    "tanh": tanh_slope,
    "relu": relu_slope,
}
