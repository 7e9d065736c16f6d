"""Batch normalization and the activation behind it; going back, the activation's mask is worked out from x again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.activation import relu, relu6, relu6_derivative, relu_derivative
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.normalization import batch_norm, batch_norm_derivative, batch_normalize
from singa_lite.kernels.numpy_kernels.pieces import pieces
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, RULES, BufferSpec, Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.standardize import standardize

#: What may stand behind a normalization, applied in place.
ACTIVATIONS: dict[str, Callable[[Array, Array], None]] = {"relu": relu, "relu6": relu6}
_DERIVATIVES: dict[str, Callable[..., None]] = {"relu": relu_derivative, "relu6": relu6_derivative}

#: What is done in one go.
FUSIONS = [(kernel, activation) for kernel in ("batch_norm", "batch_norm_derivative") for activation in ACTIVATIONS]


@scratch(lambda *tensors, activation, **settings: RULES[batch_norm](*tensors, **settings))
def batch_norm_activation(
    x: Array,
    gamma: Array,
    beta: Array,
    running_mean: Array,
    running_var: Array,
    y: Array,
    mean: Array,
    inv_std: Array,
    *,
    momentum: float,
    epsilon: float,
    activation: str,
    scratch: Bytes,
) -> None:
    """y = activation(batch_norm), the activation in place."""
    tensors = x, gamma, beta, running_mean, running_var, y, mean, inv_std
    batch_norm(*tensors, momentum=momentum, epsilon=epsilon, scratch=scratch)
    ACTIVATIONS[activation](y, y)


@scratch(lambda *tensors, activation: RULES[batch_normalize](*tensors))
def batch_normalize_activation(
    x: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    inv_std: Array,
    y: Array,
    *,
    activation: str,
    scratch: Bytes,
) -> None:
    """y = activation(batch_normalize), the activation in place."""
    batch_normalize(x, gamma, beta, mean, inv_std, y, scratch=scratch)
    ACTIVATIONS[activation](y, y)


def _derivative_bytes(dy: Shaped, x: Shaped, gamma: Shaped, beta: Shaped, *others: Shaped, activation: str) -> int:
    mask = bytes_for(*_derivative_buffers(x)) + RULES[_DERIVATIVES[activation]](dy, x, x)
    return max(mask, RULES[batch_norm_derivative](dy, x, gamma, *others))


def _derivative_buffers(x: Shaped) -> list[BufferSpec]:
    return [((min(BLOCK, x.size),), x.dtype), ((x.shape[1],), x.dtype)]


@scratch(_derivative_bytes)
def batch_norm_activation_derivative(
    dy: Array,
    x: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    inv_std: Array,
    dx: Array,
    dgamma: Array,
    dbeta: Array,
    *,
    activation: str,
    scratch: Bytes,
) -> None:
    """The activation's derivative goes into dx, piece by piece, then that of the normalization over it."""
    sizes = _derivative_buffers(x)
    buffer, scale = carve(scratch, *sizes)
    np.multiply(gamma, inv_std, out=scale)
    vectors = (v.reshape(1, v.size, *(1,) * (x.ndim - 2)) for v in (mean, scale, beta))
    for piece, derivative, target, centre, factor, shift in pieces(x, dy, dx, *vectors):
        y = shaped(buffer, piece.shape)
        standardize(piece, centre, [factor], shift, y)
        _DERIVATIVES[activation](derivative, y, target, scratch=scratch[bytes_for(*sizes) :])
    batch_norm_derivative(dx, x, gamma, mean, inv_std, dx, dgamma, dbeta, scratch=scratch)
