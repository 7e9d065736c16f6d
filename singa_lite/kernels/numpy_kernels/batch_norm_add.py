"""Batch normalization, the sum behind it and an activation: a piece is normalized into the scratch, then added."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.batch_norm_activation import ACTIVATIONS
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.normalization import batch_norm_derivative, batch_statistics
from singa_lite.kernels.numpy_kernels.pieces import pieces
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, RULES, BufferSpec, Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.standardize import standardize

#: What is done in one go.
FUSIONS = [*(("batch_norm_add", activation) for activation in ("", *ACTIVATIONS)), ("batch_norm_derivative_add", "")]


def _buffers(x: Shaped) -> list[BufferSpec]:
    """A piece of x, and a vector of channels."""
    return [((min(BLOCK, x.size),), x.dtype), ((x.shape[1],), x.dtype)]


@scratch(lambda x, *_, **__: max(RULES[batch_statistics](x), bytes_for(*_buffers(x))))
def batch_norm_add(
    x: Array,
    gamma: Array,
    beta: Array,
    running_mean: Array,
    running_var: Array,
    other: Array,
    y: Array,
    mean: Array,
    inv_std: Array,
    *,
    momentum: float,
    epsilon: float,
    activation: str,
    scratch: Bytes,
) -> None:
    """The statistics, then y by them."""
    batch_statistics(x, running_mean, running_var, mean, inv_std, momentum, epsilon, scratch=scratch)
    _added(x, gamma, beta, mean, inv_std, other, y, activation, scratch)


@scratch(lambda x, *_, **__: bytes_for(*_buffers(x)))
def batch_normalize_add(
    x: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    inv_std: Array,
    other: Array,
    y: Array,
    *,
    activation: str,
    scratch: Bytes,
) -> None:
    """The last step of `batch_norm_add`."""
    _added(x, gamma, beta, mean, inv_std, other, y, activation, scratch)


def _added(
    x: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    inv_std: Array,
    other: Array,
    y: Array,
    activation: str,
    memory: Bytes,
) -> None:
    """y = activation((x - mean) * gamma * inv_std + beta + other); y may be x or other."""
    buffer, scale = carve(memory, *_buffers(x))
    np.multiply(gamma, inv_std, out=scale)
    vectors = (v.reshape(1, v.size, *(1,) * (x.ndim - 2)) for v in (mean, scale, beta))
    for piece, summand, target, centre, factor, shift in pieces(x, other, y, *vectors):
        normalized = shaped(buffer, piece.shape)
        standardize(piece, centre, [factor], shift, normalized)
        np.add(normalized, summand, out=target)
        if activation:
            ACTIVATIONS[activation](target, target)


@scratch(lambda dy, *_: RULES[batch_norm_derivative](dy))
def batch_norm_derivative_add(
    dy: Array,
    x: Array,
    gamma: Array,
    mean: Array,
    inv_std: Array,
    other: Array,
    dx: Array,
    dgamma: Array,
    dbeta: Array,
    *,
    scratch: Bytes,
) -> None:
    """The derivative, then the sum in place."""
    batch_norm_derivative(dy, x, gamma, mean, inv_std, dx, dgamma, dbeta, scratch=scratch)
    np.add(dx, other, out=dx)
