"""Batch normalization, with a sum and an activation behind it; going back, the mask is worked out from x again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.activation import relu, relu6, relu6_derivative, relu_derivative
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import pieces
from singa_lite.kernels.numpy_kernels.rows import per_channel, piece_buffer
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, RULES, BufferSpec, Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.standardize import add_gradients, averages, invert_std, propagate, standardize
from singa_lite.kernels.numpy_kernels.sums import moments

#: What may stand behind a normalization, applied in place.
ACTIVATIONS: dict[str, Callable[[Array, Array], None]] = {"relu": relu, "relu6": relu6}
_DERIVATIVES: dict[str, Callable[..., None]] = {"relu": relu_derivative, "relu6": relu6_derivative}

#: What is done in one go.
FUSIONS = [(kernel, option) for kernel in ("batch_norm", "batch_norm_derivative") for option in (*ACTIVATIONS, "other")]


def _channel_buffers(x: Shaped, sums: int, vectors: int = 0) -> list[BufferSpec]:
    """So many float64 sums a channel, and so many vectors of channels in x's dtype."""
    return [((sums, x.shape[1]), np.float64), ((vectors, x.shape[1]), x.dtype)]


def _statistics_bytes(x: Shaped) -> int:
    return bytes_for(piece_buffer(x, np.float64), *_channel_buffers(x, 3))


def _normalize_buffers(x: Shaped, other: Shaped | None) -> list[BufferSpec]:
    """A piece of x, where something is added, and a vector of channels."""
    return [((0 if other is None else min(BLOCK, x.size),), x.dtype), ((x.shape[1],), x.dtype)]


@scratch(
    lambda x, gamma, beta, running_mean, running_var, other, *_, **__: max(
        _statistics_bytes(x), bytes_for(*_normalize_buffers(x, other))
    )
)
def batch_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    running_mean: Array,
    running_var: Array,
    other: Array | None,
    y: Array,
    mean: Array,
    inv_std: Array,
    *,
    momentum: float,
    epsilon: float,
    activation: str = "",
    scratch: Bytes,
) -> None:
    """Statistics, running statistics, which an empty batch leaves alone, then y."""
    buffer, (average, variance, partial), _ = carve(scratch, piece_buffer(x, np.float64), *_channel_buffers(x, 3))
    moments(x, per_channel(average, x), per_channel(variance, x), buffer, partial)
    count = x.size // max(1, x.shape[1])
    if count:
        _move(running_mean, average, momentum, 1.0, partial)
        _move(running_var, variance, momentum, count / max(1, count - 1), partial)
    np.copyto(mean, average, casting="same_kind")
    np.copyto(inv_std, invert_std(variance, epsilon), casting="same_kind")
    batch_normalize(x, gamma, beta, mean, inv_std, other, y, activation=activation, scratch=scratch)


def _move(running: Array, batch: Array, momentum: float, correction: float, temporary: Array) -> None:
    """running = (1 - momentum) * running + momentum * correction * batch."""
    np.multiply(running, 1 - momentum, out=running)
    np.add(running, np.multiply(batch, momentum * correction, out=temporary), out=running)


@scratch(
    lambda x, gamma, beta, mean, inv_std, other, *_, **__: bytes_for(*_normalize_buffers(x, other)),
)
def batch_normalize(
    x: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    inv_std: Array,
    other: Array | None,
    y: Array,
    *,
    activation: str = "",
    scratch: Bytes,
) -> None:
    """y = activation((x - mean) * scale + beta + other), scale = gamma * inv_std; y may be x or other."""
    buffer, scale = carve(scratch, *_normalize_buffers(x, other))
    np.multiply(gamma, inv_std, out=scale)
    mean, scale, beta = (per_channel(vector, x) for vector in (mean, scale, beta))
    if other is None:
        standardize(x, mean, [scale], beta, y)
    else:
        for piece, summand, target, centre, factor, shift in pieces(x, other, y, mean, scale, beta):
            normalized = shaped(buffer, piece.shape)
            standardize(piece, centre, [factor], shift, normalized)
            np.add(normalized, summand, out=target)
    if activation:
        ACTIVATIONS[activation](y, y)


@scratch(lambda x, *_, **__: bytes_for(*_channel_buffers(x, 1, 1)))
def batch_norm_inference(
    x: Array,
    gamma: Array,
    beta: Array,
    running_mean: Array,
    running_var: Array,
    y: Array,
    *,
    epsilon: float,
    scratch: Bytes,
) -> None:
    """As `batch_norm`, with the statistics given."""
    (variance,), (scale,) = carve(scratch, *_channel_buffers(x, 1, 1))
    np.copyto(variance, running_var)
    np.multiply(gamma, invert_std(variance, epsilon), out=scale)
    standardize(x, per_channel(running_mean, x), [per_channel(scale, x)], per_channel(beta, x), y)


def _derivative_buffers(x: Shaped) -> list[BufferSpec]:
    return [piece_buffer(x, np.float64), piece_buffer(x, x.dtype), *_channel_buffers(x, 3, 3)]


def _derivative_bytes(dy: Shaped, *_: Shaped | None, activation: str = "") -> int:
    masks = RULES[_DERIVATIVES[activation]](dy, dy, dy) if activation else 0
    return bytes_for(*_derivative_buffers(dy)) + masks


@scratch(_derivative_bytes)
def batch_norm_derivative(
    dy: Array,
    x: Array,
    gamma: Array,
    beta: Array | None,
    mean: Array,
    inv_std: Array,
    other: Array | None,
    dx: Array,
    dgamma: Array,
    dbeta: Array,
    *,
    activation: str = "",
    scratch: Bytes,
) -> None:
    """The two sums, then dx from them, then the sum in place; dx may be dy or x."""
    sizes = _derivative_buffers(dy)
    buffer, piece, sums, (offset, slope, scale) = carve(scratch, *sizes)
    np.multiply(gamma, inv_std, out=scale)

    def derived(room: Array, *others: Array) -> Iterator[tuple[Array, ...]]:
        """The activation's derivative, made in the room for a piece, with x, mean and the others in pieces."""
        if beta is None:
            yield dy, x, per_channel(mean, x), *others
            return
        mask = (per_channel(vector, x) for vector in (mean, scale, beta))
        for values, part, centre, factor, shift, *cut in pieces(dy, x, *mask, *others):
            y = shaped(room, part.shape)
            standardize(part, centre, [factor], shift, y)
            _DERIVATIVES[activation](values, y, y, scratch=scratch[bytes_for(*sizes) :])
            yield y, part, centre, *cut

    sums[:2].fill(0)
    totals = (per_channel(vector, x) for vector in (inv_std, *sums[:2]))
    for g, part, centre, deviation, sum_g, sum_product in derived(piece, *totals):
        add_gradients(g, part, (centre, deviation), (sum_g, sum_product), buffer, sums[2])
    np.copyto(dbeta, sums[0], casting="same_kind")
    np.copyto(dgamma, sums[1], casting="same_kind")
    averages(sums, inv_std, x.size // max(1, mean.size), offset, slope)
    vectors = (per_channel(vector, x) for vector in (offset, slope, scale))
    for g, part, centre, intercept, factor, last, target in derived(buffer.view(x.dtype), *vectors, dx):
        propagate(g, part, centre, intercept, factor, last, target, piece)
    if other is not None:
        np.add(dx, other, out=dx)


@scratch(lambda dy, *_: bytes_for(piece_buffer(dy, np.float64), *_channel_buffers(dy, 3)))
def batch_norm_gradient(
    dy: Array, x: Array, mean: Array, inv_std: Array, dgamma: Array, dbeta: Array, *, scratch: Bytes
) -> None:
    """The same two sums."""
    buffer, sums, _ = carve(scratch, piece_buffer(dy, np.float64), *_channel_buffers(dy, 3))
    sums[:2].fill(0)
    mean, inv_std, *totals = (per_channel(vector, x) for vector in (mean, inv_std, *sums[:2]))
    add_gradients(dy, x, (mean, inv_std), (totals[0], totals[1]), buffer, sums[2])
    np.copyto(dbeta, sums[0], casting="same_kind")
    np.copyto(dgamma, sums[1], casting="same_kind")
