"""Group normalization: layer normalization of long rows, of images whose channels are split into groups."""

from __future__ import annotations

from functools import partial

from singa_lite.kernels.cuda_kernels.layer_norm import sum_rows
from singa_lite.kernels.cuda_kernels.long_layer_norm import normalize_long_rows, propagate_long_rows
from singa_lite.kernels.cuda_kernels.plane import axis_spec, plane, spread, types_of
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.cuda_kernels.walk import walk
from singa_lite.kernels.kernel_set import TensorSpec


def group_norm(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    y: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    *,
    epsilon: float,
) -> Routine | None:
    """A row is a group of a sample."""
    types = types_of((x, y), (gamma, beta, mean, inv_std))
    if types is None:
        return None
    view = partial(_grouped, x.ndim, mean.shape[1])
    return normalize_long_rows(x, gamma, beta, y, mean, inv_std, epsilon, types, view)


def group_norm_derivative(
    dy: TensorSpec, x: TensorSpec, gamma: TensorSpec, mean: TensorSpec, inv_std: TensorSpec, dx: TensorSpec
) -> Routine | None:
    """A row is a group of a sample."""
    types = types_of((dy, x, dx), (gamma, mean, inv_std))
    if types is None:
        return None
    view = partial(_grouped, x.ndim, mean.shape[1])
    return propagate_long_rows(dy, x, gamma, mean, inv_std, dx, types, view)


def group_norm_gradient(
    dy: TensorSpec, x: TensorSpec, mean: TensorSpec, inv_std: TensorSpec, dgamma: TensorSpec, dbeta: TensorSpec
) -> Routine | None:
    """Steps: sums of slabs of samples and positions, then of channels."""
    types = types_of((dy, x), (mean, inv_std, dgamma, dbeta))
    view = partial(_grouped, x.ndim, mean.shape[1])
    top, whole = view(dy), view(x)
    channels = (1, 2)
    found = plane(channels, (top, whole, *(spread(spec, (0, 1), whole.shape) for spec in (mean, inv_std))))
    sums = (axis_spec((0, 1), view(spec)) for spec in (dgamma, dbeta))
    vectors = walk(whole.shape[1:3], (axis_spec(channels, top), *sums))
    if types is None or found is None or vectors is None:
        return None
    return sum_rows(dy, x, mean, inv_std, dgamma, dbeta, types, found, vectors)


def _grouped(axes: int, groups: int, spec: TensorSpec) -> TensorSpec:
    """(n, c, ...) of so many axes as (n, groups, c / groups, ...), and (c,) as (groups, c / groups, 1, ...)."""
    at = min(spec.ndim - 1, 1)  # the axis of channels
    each, stride, more = spec.shape[at] // groups, spec.strides[at], axes - 2 if at == 0 else 0
    shape = *spec.shape[:at], groups, each, *spec.shape[at + 1 :], *(1,) * more
    strides = *spec.strides[:at], stride * each, stride, *spec.strides[at + 1 :], *(0,) * more
    return TensorSpec(shape, spec.dtype, strides)
