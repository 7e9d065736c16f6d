"""Normalizations but that of batches.

Statistics are summed in float64, which costs little and keeps float32 results right; the rest has x's dtype.
"""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import line_buffer, pieces
from singa_lite.kernels.numpy_kernels.rows import per_feature, per_row, piece_buffer, row_blocks, row_buffers
from singa_lite.kernels.numpy_kernels.scratch import BufferSpec, Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.standardize import add_gradients, averages, invert_std, propagate, standardize
from singa_lite.kernels.numpy_kernels.sums import moments, sum_products


def _layer_norm_buffers(x: Shaped, mean: Shaped) -> list[BufferSpec]:
    return [piece_buffer(x, np.float64), *row_buffers(x, mean, 3)]


@scratch(lambda x, gamma, beta, y, mean, inv_std, **_: bytes_for(*_layer_norm_buffers(x, mean)))
def layer_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    y: Array,
    mean: Array,
    inv_std: Array,
    *,
    epsilon: float,
    scratch: Bytes,
) -> None:
    """Statistics and y, a few rows at a time."""
    buffer, sums, _ = carve(scratch, *_layer_norm_buffers(x, mean))
    gamma, beta = per_feature(gamma, x), per_feature(beta, x)
    for rows in row_blocks(x, mean):
        means, inv_stds = per_row(mean[rows], x), per_row(inv_std[rows], x)
        average, variance = (shaped(total, means.shape) for total in sums[:2])
        moments(x[rows], average, variance, buffer, sums[2])
        np.copyto(means, average, casting="same_kind")
        np.copyto(inv_stds, invert_std(variance, epsilon), casting="same_kind")
        standardize(x[rows], means, [inv_stds, gamma], beta, y[rows])


def _layer_derivative_buffers(dy: Shaped, mean: Shaped) -> list[BufferSpec]:
    return [piece_buffer(dy, np.float64), piece_buffer(dy, dy.dtype), *row_buffers(dy, mean, 3, 2)]


@scratch(lambda dy, x, gamma, mean, *_: bytes_for(*_layer_derivative_buffers(dy, mean)))
def layer_norm_derivative(
    dy: Array, x: Array, gamma: Array, mean: Array, inv_std: Array, dx: Array, *, scratch: Bytes
) -> None:
    """A few rows at a time; dx holds g until it is written."""
    buffer, centred, sums, vectors = carve(scratch, *_layer_derivative_buffers(dy, mean))
    count, gamma = gamma.size, per_feature(gamma, x)
    for rows in row_blocks(x, mean):
        piece, g = x[rows], dx[rows]
        means, inv_stds = per_row(mean[rows], x), per_row(inv_std[rows], x)
        offset, slope = (shaped(vector, means.shape) for vector in vectors)
        total = sums[:2, : means.size].reshape(2, *means.shape)
        np.multiply(dy[rows], gamma, out=g)
        total.fill(0)
        add_gradients(g, piece, (means, inv_stds), (total[0], total[1]), buffer, sums[2])
        averages(total, inv_stds, count, offset, slope)
        propagate(g, piece, means, offset, slope, inv_stds, g, centred)


def _layer_gradient_buffers(dy: Shaped, dgamma: Shaped) -> list[BufferSpec]:
    return [piece_buffer(dy, np.float64), ((3, dgamma.size), np.float64)]


@scratch(lambda dy, x, mean, inv_std, dgamma, dbeta: bytes_for(*_layer_gradient_buffers(dy, dgamma)))
def layer_norm_gradient(
    dy: Array, x: Array, mean: Array, inv_std: Array, dgamma: Array, dbeta: Array, *, scratch: Bytes
) -> None:
    """Both sums over the rows."""
    buffer, sums = carve(scratch, *_layer_gradient_buffers(dy, dgamma))
    sum_dy, sum_product = (shaped(total, dgamma.shape) for total in sums[:2])
    statistics = per_row(mean, x), per_row(inv_std, x)
    sums[:2].fill(0)
    add_gradients(dy, x, statistics, (per_feature(sum_dy, x), per_feature(sum_product, x)), buffer, sums[2])
    np.copyto(dbeta, sum_dy, casting="same_kind")
    np.copyto(dgamma, sum_product, casting="same_kind")


@scratch(lambda x, y, norm, **_: bytes_for(piece_buffer(x, np.float64), *row_buffers(x, norm, 2)))
def l2_norm(x: Array, y: Array, norm: Array, *, epsilon: float, scratch: Bytes) -> None:
    """The norm from a float64 sum, then one division."""
    buffer, (sums, partial), _ = carve(scratch, piece_buffer(x, np.float64), *row_buffers(x, norm, 2))
    for rows in row_blocks(x, norm):
        norms = per_row(norm[rows], x)
        total = shaped(sums, norms.shape)
        sum_products(x[rows], x[rows], total, buffer, partial)
        np.add(total, epsilon, out=total)
        np.sqrt(total, out=norms, casting="same_kind")
        np.divide(x[rows], norms, out=y[rows])


def _l2_derivative_buffers(y: Shaped, norm: Shaped) -> list[BufferSpec]:
    return [piece_buffer(y, np.float64), piece_buffer(y, y.dtype), *row_buffers(y, norm, 2, 1)]


@scratch(lambda dy, y, norm, dx: bytes_for(*_l2_derivative_buffers(y, norm)))
def l2_norm_derivative(dy: Array, y: Array, norm: Array, dx: Array, *, scratch: Bytes) -> None:
    """The sum over the sample, then dx."""
    buffer, projection, (sums, partial), (vector,) = carve(scratch, *_l2_derivative_buffers(y, norm))
    for rows in row_blocks(y, norm):
        norms = per_row(norm[rows], y)
        total, slope = shaped(sums, norms.shape), shaped(vector, norms.shape)
        sum_products(dy[rows], y[rows], total, buffer, partial)
        np.copyto(slope, total, casting="same_kind")
        for piece, source, target, length, factor in pieces(y[rows], dy[rows], dx[rows], norms, slope):
            along = np.multiply(piece, factor, out=shaped(projection, piece.shape))
            np.subtract(source, along, out=target)
            np.divide(target, length, out=target)


def lrn(x: Array, y: Array, scale: Array, *, size: int, alpha: float, beta: float, k: float) -> None:
    """All channels of a few positions at a time; y holds the squares until it is written."""
    for piece, target, scales in pieces(x, y, scale, whole=(1,)):
        _window_sums(np.multiply(piece, piece, out=target), size, scales)
        np.multiply(scales, alpha / size, out=scales)
        np.add(scales, k, out=scales)
        np.power(scales, -beta, out=target)
        np.multiply(piece, target, out=target)


@scratch(lambda dy, *_, **__: bytes_for(*[line_buffer(dy, 1)] * 2))
def lrn_derivative(
    dy: Array, x: Array, scale: Array, dx: Array, *, size: int, alpha: float, beta: float, scratch: Bytes
) -> None:
    """As `lrn`; the first term waits in dx for the second."""
    buffers = carve(scratch, *[line_buffer(dy, 1)] * 2)
    for source, piece, scales, target in pieces(dy, x, scale, dx, whole=(1,)):
        terms, sums = (shaped(buffer, piece.shape) for buffer in buffers)
        np.multiply(source, np.power(scales, -beta, out=terms), out=target)
        np.multiply(target, piece, out=terms)
        np.divide(terms, scales, out=terms)
        _window_sums(terms, size, sums)
        np.multiply(sums, piece, out=sums)
        np.multiply(sums, 2 * alpha * beta / size, out=sums)
        np.subtract(target, sums, out=target)


def _window_sums(values: Array, size: int, out: Array) -> None:
    """out = sums of the values over `size` neighbouring channels (axis 1), the output's own in the middle."""
    np.copyto(out, values)
    for distance in range(1, min(size // 2, values.shape[1] - 1) + 1):
        np.add(out[:, distance:], values[:, :-distance], out=out[:, distance:])
        np.add(out[:, :-distance], values[:, distance:], out=out[:, :-distance])
