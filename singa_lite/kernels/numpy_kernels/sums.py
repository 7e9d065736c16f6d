"""Sums over some axes of large tensors, piece by piece, in float64.

The axes are given by the result: it has the tensor's number of axes, and extent 1 along those summed over.
"""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import pieces


def add_sum(values: Array, total: Array, partial: Array) -> None:
    """total += the sum of the values. partial: flat float64 buffer for as many elements as total has."""
    axes = tuple(axis for axis, extent in enumerate(total.shape) if extent == 1)
    out = shaped(partial, total.shape)
    np.add.reduce(values, axis=axes, dtype=np.float64, keepdims=True, out=out)
    np.add(total, out, out=total)


def sum_products(a: Array, b: Array, total: Array, buffer: Array, partial: Array) -> None:
    """total = the sum of a * b. buffer: flat float64, for a piece of a; partial: as in `add_sum`."""
    total.fill(0)
    for left, right, target in pieces(a, b, total):
        add_sum(np.multiply(left, right, dtype=np.float64, out=shaped(buffer, left.shape)), target, partial)


def moments(x: Array, mean: Array, variance: Array, buffer: Array, partial: Array) -> None:
    """Mean and biased variance of x; 0 where there is nothing to sum. Buffers as in `sum_products`.

    Two passes over x: the mean of the squares less the square of the mean would cancel.
    """
    count = max(1, x.size // max(1, mean.size))
    mean.fill(0)
    for piece, target in pieces(x, mean):
        add_sum(piece, target, partial)
    np.divide(mean, count, out=mean)
    variance.fill(0)
    for piece, centre, target in pieces(x, mean, variance):
        centred = np.subtract(piece, centre, dtype=np.float64, out=shaped(buffer, piece.shape))
        add_sum(np.multiply(centred, centred, out=centred), target, partial)
    np.divide(variance, count, out=variance)
