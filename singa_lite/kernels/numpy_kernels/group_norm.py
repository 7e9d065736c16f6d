"""Group normalisation: layer normalisation's passes over images whose channels are split into groups."""

from __future__ import annotations

from math import prod

import numpy as np

from singa_lite.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.normalization import averages
from singa_lite.kernels.numpy_kernels.rows import per_row, piece_buffer, row_blocks, row_buffers
from singa_lite.kernels.numpy_kernels.scratch import BufferSpec, Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.standardize import invert_std, propagate, standardize, sum_gradients
from singa_lite.kernels.numpy_kernels.sums import moments


def _split(x: Array, groups: int) -> Array:
    """A view (n, groups, c / groups, ...) of (n, c, ...)."""
    n, channels, *extents = x.shape
    return x.reshape(n, groups, channels // groups, *extents)


def _by_channel(vector: Array, groups: int, x: Array) -> Array:
    """A view (1, groups, c / groups, 1, ...) of (c,), for x of as many axes."""
    return vector.reshape(1, groups, -1, *(1,) * (x.ndim - 3))


def _norm_buffers(x: Shaped, mean: Shaped) -> list[BufferSpec]:
    return [piece_buffer(x, np.float64), *row_buffers(x, mean, 3)]


@scratch(lambda x, gamma, beta, y, mean, inv_std, **_: bytes_for(*_norm_buffers(x, mean)))
def group_norm(
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
    """Statistics and y, a few groups at a time."""
    buffer, sums, _ = carve(scratch, *_norm_buffers(x, mean))
    groups = mean.shape[1]
    x, y = _split(x, groups), _split(y, groups)
    gamma, beta = _by_channel(gamma, groups, x), _by_channel(beta, groups, x)
    for rows in row_blocks(x, mean):
        means, inv_stds = per_row(mean[rows], x), per_row(inv_std[rows], x)
        total, variance = (shaped(each, means.shape) for each in sums[:2])
        moments(x[rows], total, variance, buffer, sums[2])
        np.copyto(means, total, casting="same_kind")
        np.copyto(inv_stds, invert_std(variance, epsilon), casting="same_kind")
        standardize(x[rows], means, [inv_stds, gamma[:, rows[1]]], beta[:, rows[1]], y[rows])


def _derivative_buffers(dy: Shaped, mean: Shaped) -> list[BufferSpec]:
    return [piece_buffer(dy, np.float64), piece_buffer(dy, dy.dtype), *row_buffers(dy, mean, 3, 2)]


@scratch(lambda dy, x, gamma, mean, *_: bytes_for(*_derivative_buffers(dy, mean)))
def group_norm_derivative(
    dy: Array, x: Array, gamma: Array, mean: Array, inv_std: Array, dx: Array, *, scratch: Bytes
) -> None:
    """A few groups at a time; dx holds g until it is written."""
    buffer, centred, sums, vectors = carve(scratch, *_derivative_buffers(dy, mean))
    groups = mean.shape[1]
    dy, x, dx = (_split(each, groups) for each in (dy, x, dx))
    gamma, count = _by_channel(gamma, groups, x), prod(x.shape[2:])
    for rows in row_blocks(x, mean):
        piece, g = x[rows], dx[rows]
        means, inv_stds = per_row(mean[rows], x), per_row(inv_std[rows], x)
        offset, slope = (shaped(vector, means.shape) for vector in vectors)
        total = sums[:2, : means.size].reshape(2, *means.shape)
        np.multiply(dy[rows], gamma[:, rows[1]], out=g)
        sum_gradients(g, piece, (means, inv_stds), (total[0], total[1]), buffer, sums[2])
        averages(total, inv_stds, count, offset, slope)
        propagate(g, piece, means, offset, slope, inv_stds, g, centred)


def _gradient_buffers(dy: Shaped, dgamma: Shaped) -> list[BufferSpec]:
    return [piece_buffer(dy, np.float64), ((3, dgamma.size), np.float64)]


@scratch(lambda dy, x, mean, inv_std, dgamma, dbeta: bytes_for(*_gradient_buffers(dy, dgamma)))
def group_norm_gradient(
    dy: Array, x: Array, mean: Array, inv_std: Array, dgamma: Array, dbeta: Array, *, scratch: Bytes
) -> None:
    """Both sums over all but the channels."""
    buffer, sums = carve(scratch, *_gradient_buffers(dy, dgamma))
    groups = mean.shape[1]
    dy, x = _split(dy, groups), _split(x, groups)
    sum_dy, sum_product = (_by_channel(shaped(total, dgamma.shape), groups, x) for total in sums[:2])
    statistics = per_row(mean, x), per_row(inv_std, x)
    sum_gradients(dy, x, statistics, (sum_dy, sum_product), buffer, sums[2])
    np.copyto(dbeta, sum_dy.reshape(-1), casting="same_kind")
    np.copyto(dgamma, sum_product.reshape(-1), casting="same_kind")
