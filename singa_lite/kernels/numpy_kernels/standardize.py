"""What batch and layer normalization share: passes over x with statistics that broadcast to it.

Statistics and parameters have x's number of axes, with extent 1 along those they do not vary over.
"""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import pieces
from singa_lite.kernels.numpy_kernels.sums import add_sum


def invert_std(variance: Array, epsilon: float) -> Array:
    """1 / sqrt(variance + epsilon), in place of the variance."""
    np.add(variance, epsilon, out=variance)
    np.sqrt(variance, out=variance)
    return np.divide(1, variance, out=variance)


def standardize(x: Array, mean: Array, factors: list[Array], beta: Array, y: Array) -> None:
    """y = (x - mean) * factors + beta; y may be x. Subtracting first is exact where x is near its mean."""
    for piece, centre, shift, target, *scales in pieces(x, mean, beta, y, *factors):
        np.subtract(piece, centre, out=target)
        for scale in scales:
            np.multiply(target, scale, out=target)
        np.add(target, shift, out=target)


def add_gradients(
    g: Array,
    x: Array,
    statistics: tuple[Array, Array],
    sums: tuple[Array, Array],
    buffer: Array,
    partial: Array,
) -> None:
    """sums += (sum of g, sum of g * xhat), xhat = (x - mean) * inv_std, statistics = (mean, inv_std).

    buffer: flat float64, for a piece of x; partial: as in `add_sum`.
    """
    for piece, values, centre, inv_std, sum_g, sum_product in pieces(x, g, *statistics, *sums):
        add_sum(values, sum_g, partial)
        products = np.subtract(piece, centre, dtype=np.float64, out=shaped(buffer, piece.shape))
        np.multiply(products, inv_std, out=products)
        add_sum(np.multiply(products, values, out=products), sum_product, partial)


def averages(sums: Array, inv_std: Array, count: int, offset: Array, slope: Array) -> None:
    """offset = mean of g, slope = inv_std * mean of g * xhat. sums: the sums of both, overwritten."""
    np.divide(sums[0], max(1, count), out=offset)
    np.multiply(sums[1], inv_std, out=sums[1])
    np.divide(sums[1], max(1, count), out=slope)


def propagate(
    g: Array, x: Array, mean: Array, offset: Array, slope: Array, scale: Array, dx: Array, buffer: Array
) -> None:
    """dx = scale * (g - offset - slope * (x - mean)); dx may be g.

    buffer: flat, x's dtype, for a piece of x.
    """
    for values, piece, centre, intercept, factor, last, target in pieces(g, x, mean, offset, slope, scale, dx):
        centred = np.subtract(piece, centre, out=shaped(buffer, piece.shape))
        np.multiply(centred, factor, out=centred)
        np.subtract(values, intercept, out=target)
        np.subtract(target, centred, out=target)
        np.multiply(target, last, out=target)
