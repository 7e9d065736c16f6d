"""Group normalisation: sums of each channel of a sample, merged to those of its groups, and passes channel by channel.

A statistic of a group would stand beside few channels, and NumPy's innermost loop be as short as a group where channels
lie innermost; one number for each channel makes it as long as there are channels.
"""

from __future__ import annotations

from math import prod

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.rows import per_channel, piece_buffer
from singa_lite.kernels.numpy_kernels.scratch import BufferSpec, Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.standardize import add_gradients, averages, invert_std, propagate, standardize
from singa_lite.kernels.numpy_kernels.sums import moments


def _vectors(x: Shaped, sums: int, numbers: int) -> list[BufferSpec]:
    """So many float64 sums of each channel of one sample, and so many numbers in x's dtype."""
    return [((sums, x.shape[1]), np.float64), ((numbers, x.shape[1]), x.dtype)]


def _spread(numbers: Array, vector: Array, x: Array) -> Array:
    """One number of each group for each of its channels: in `vector` (c,), given as a view (1, c, 1, ...)."""
    np.copyto(vector.reshape(len(numbers), -1), numbers[:, None], casting="same_kind")
    return per_channel(vector, x)


def _merge(average: Array, variance: Array, spare: Array, groups: int) -> tuple[Array, Array]:
    """(mean, variance) of groups from those of their channels, which are overwritten (Chan and others, 1979)."""
    apart, squares, mean = average.reshape(groups, -1), variance.reshape(groups, -1), spare[:groups]
    each = apart.shape[1]
    np.divide(np.add.reduce(apart, 1, out=mean), each, out=mean)
    np.subtract(apart, mean[:, None], out=apart)
    np.add(squares, np.multiply(apart, apart, out=apart), out=squares)
    total = average[:groups]
    return mean, np.divide(np.add.reduce(squares, 1, out=total), each, out=total)


@scratch(lambda x, gamma, beta, y, mean, inv_std, **_: bytes_for(piece_buffer(x, np.float64), *_vectors(x, 3, 2)))
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
    """Statistics and y, sample by sample."""
    buffer, sums, numbers = carve(scratch, piece_buffer(x, np.float64), *_vectors(x, 3, 2))
    average, variance, spare = sums
    scale, shift = per_channel(gamma, x), per_channel(beta, x)
    for number, means in enumerate(mean):
        sample, inv_stds = x[number : number + 1], inv_std[number]
        moments(sample, per_channel(average, x), per_channel(variance, x), buffer, spare)
        own_mean, own_variance = _merge(average, variance, spare, len(means))
        np.copyto(means, own_mean, casting="same_kind")
        np.copyto(inv_stds, invert_std(own_variance, epsilon), casting="same_kind")
        centre, factor = (_spread(each, vector, x) for each, vector in zip((means, inv_stds), numbers, strict=True))
        standardize(sample, centre, [factor, scale], shift, y[number : number + 1])


def _derivative_buffers(x: Shaped) -> list[BufferSpec]:
    return [piece_buffer(x, np.float64), piece_buffer(x, x.dtype), *_vectors(x, 5, 6)]


@scratch(lambda dy, x, *_: bytes_for(*_derivative_buffers(x)))
def group_norm_derivative(
    dy: Array, x: Array, gamma: Array, mean: Array, inv_std: Array, dx: Array, *, scratch: Bytes
) -> None:
    """Sample by sample; dx holds g until it is written."""
    buffer, centred, sums, numbers = carve(scratch, *_derivative_buffers(x))
    groups = mean.shape[1]
    count, scale = prod(x.shape[1:]) // groups, per_channel(gamma, x)
    offsets, slopes, totals = numbers[4, :groups], numbers[5, :groups], sums[3:, :groups]
    for number, (means, inv_stds) in enumerate(zip(mean, inv_std, strict=True)):
        sample, g = x[number : number + 1], dx[number : number + 1]
        np.multiply(dy[number : number + 1], scale, out=g)
        statistics = _spread(means, numbers[0], x), _spread(inv_stds, numbers[1], x)
        sums[:2].fill(0)
        add_gradients(g, sample, statistics, (per_channel(sums[0], x), per_channel(sums[1], x)), buffer, sums[2])
        np.add.reduce(sums[:2].reshape(2, groups, -1), 2, out=totals)
        averages(totals, inv_stds, count, offsets, slopes)
        offset, slope = _spread(offsets, numbers[2], x), _spread(slopes, numbers[3], x)
        propagate(g, sample, statistics[0], offset, slope, statistics[1], g, centred)


@scratch(lambda dy, x, *_: bytes_for(piece_buffer(dy, np.float64), *_vectors(x, 5, 2)))
def group_norm_gradient(
    dy: Array, x: Array, mean: Array, inv_std: Array, dgamma: Array, dbeta: Array, *, scratch: Bytes
) -> None:
    """Both sums over all but the channels, sample by sample."""
    buffer, sums, numbers = carve(scratch, piece_buffer(dy, np.float64), *_vectors(x, 5, 2))
    own, totals = sums[:2], sums[3:]
    totals.fill(0)
    for number, (means, inv_stds) in enumerate(zip(mean, inv_std, strict=True)):
        statistics = _spread(means, numbers[0], x), _spread(inv_stds, numbers[1], x)
        targets = per_channel(own[0], x), per_channel(own[1], x)
        one = slice(number, number + 1)
        own.fill(0)
        add_gradients(dy[one], x[one], statistics, targets, buffer, sums[2])
        np.add(totals, own, out=totals)
    np.copyto(dbeta, totals[0], casting="same_kind")
    np.copyto(dgamma, totals[1], casting="same_kind")
