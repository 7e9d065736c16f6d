"""Group normalization: layer normalization of long rows, of images whose channels are split into groups."""

from __future__ import annotations

from functools import partial

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.layer_norm import sum_rows
from singa_lite.kernels.cuda_kernels.long_layer_norm import View, normalize_long_rows, propagate_long_rows
from singa_lite.kernels.cuda_kernels.plane import axis_spec, plane, spread, types_of
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.cuda_kernels.walk import walk
from singa_lite.kernels.kernel_set import TensorSpec


def _forward(call: Call) -> Routine | None:
    """A row is a group of a sample."""
    types = types_of(call.all("x", "y"), call.all("gamma", "beta", "mean", "inv_std"))
    return None if types is None else normalize_long_rows(call, types, _view(call))


def _derivative(call: Call) -> Routine | None:
    """A row is a group of a sample."""
    types = types_of(call.all("dy", "x", "dx"), call.all("gamma", "mean", "inv_std"))
    return None if types is None else propagate_long_rows(call, types, _view(call))


def _gradient(call: Call) -> Routine | None:
    """Steps: sums of slabs of samples and positions, then of channels."""
    statistics, results, view = call.all("mean", "inv_std"), call.all("dgamma", "dbeta"), _view(call)
    types = types_of(call.all("dy", "x"), [*statistics, *results])
    top, whole = view(call["dy"]), view(call["x"])
    channels = (1, 2)
    found = plane(channels, (top, whole, *(spread(spec, (0, 1), whole.shape) for spec in statistics)))
    sums = (axis_spec((0, 1), view(spec)) for spec in results)
    vectors = walk(whole.shape[1:3], (axis_spec(channels, top), *sums))
    if types is None or found is None or vectors is None:
        return None
    return sum_rows(call, types, found, vectors)


def _view(call: Call) -> View:
    return partial(_grouped, call["x"].ndim, call["mean"].shape[1])


def _grouped(axes: int, groups: int, spec: TensorSpec) -> TensorSpec:
    """(n, c, ...) of so many axes as (n, groups, c / groups, ...), and (c,) as (groups, c / groups, 1, ...)."""
    at = min(spec.ndim - 1, 1)  # the axis of channels
    each, stride, more = spec.shape[at] // groups, spec.strides[at], axes - 2 if at == 0 else 0
    shape = *spec.shape[:at], groups, each, *spec.shape[at + 1 :], *(1,) * more
    strides = *spec.strides[:at], stride * each, stride, *spec.strides[at + 1 :], *(0,) * more
    return TensorSpec(shape, spec.dtype, strides)


KERNELS: dict[str, CallBuilder[Routine]] = {
    "group_norm": _forward,
    "group_norm_derivative": _derivative,
    "group_norm_gradient": _gradient,
}
