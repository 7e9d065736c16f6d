"""Layer normalization: a warp for each row; few or long rows in `long_layer_norm`.

Group normalization is that of long rows, of images whose channels are split into groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.long_layer_norm import View, normalize_long_rows, propagate_long_rows
from singa_lite.kernels.cuda_kernels.plane import (
    Plane,
    neighbours,
    partial_results,
    plane,
    types_of,
)
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine, Types, Value, warps
from singa_lite.kernels.cuda_kernels.source import computed
from singa_lite.kernels.cuda_kernels.walk import FLAT, Struct, axis_spec, spread, walk
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "layer_norm.cu"
#: Features of a row that one warp takes: if there are rows enough to keep a GPU busy, and if not.
WARP_FEATURES, FEW_FEATURES, MANY_ROWS = 8192, 1024, 512

_Walks = tuple[Struct, Struct, np.uint32, np.uint32]


def _forward(call: Call) -> Routine | None:
    """Statistics and y, at once if a warp can take a row."""
    statistics, parameters = call.all("mean", "inv_std"), call.all("gamma", "beta")
    types = types_of(call.all("x", "y"), [*parameters, *statistics])
    if types is None:
        return None
    if not _is_short(call):
        return normalize_long_rows(call, types)
    walks = _walks(call.all("x", "y"), statistics, parameters)
    operands = call.all("x", "gamma", "beta", "y", "mean", "inv_std")
    return _by_warps("layer_rows", walks, operands, types, np.float64(call.number("epsilon")))


def _derivative(call: Call) -> Routine | None:
    """dx, at once if a warp can take a row."""
    tensors, statistics, parameters = call.all("dy", "x", "dx"), call.all("mean", "inv_std"), call.all("gamma")
    types = types_of(tensors, [*parameters, *statistics])
    if types is None:
        return None
    if not _is_short(call):
        return propagate_long_rows(call, types)
    operands = call.all("dy", "x", "gamma", "mean", "inv_std", "dx")
    return _by_warps("layer_rows_derivative", _walks(tensors, statistics, parameters), operands, types)


def _gradient(call: Call) -> Routine | None:
    """Steps: sums of slabs of rows, then of features."""
    tensors, statistics, results = call.all("dy", "x"), call.all("mean", "inv_std"), call.all("dgamma", "dbeta")
    types, (dy, x) = types_of(tensors, [*statistics, *results]), tensors
    rows = range(statistics[0].ndim)
    features = range(len(rows), x.ndim)
    found = plane(features, (dy, x, *(spread(spec, rows, x.shape) for spec in statistics)))
    vectors = walk(results[0].shape, (axis_spec(features, dy), *results))
    if types is None or found is None or vectors is None:
        return None
    return sum_rows(call, types, found, vectors)


def sum_rows(call: Call, types: Types, found: Plane, vectors: Struct) -> Routine:
    """The gradients' two steps. found: dy, x, mean and inv_std, summed; vectors: dy of one sum, dgamma, dbeta."""
    routine = Routine()
    partial = [partial_results(routine, found, computed(call["x"].dtype)) for _ in range(2)]
    first: tuple[Argument, ...] = found.struct, *call.all("dy", "x", "mean", "inv_std"), *partial
    routine.launch(FILE, "layer_slab_gradients", *first, types=types, grid=found.blocks)
    second: tuple[Argument, ...] = vectors, *partial, np.uint32(found.slabs), *call.all("dgamma", "dbeta")
    return routine.launch(FILE, "layer_gradients", *second, types=types, grid=found.warps)


def _is_short(call: Call) -> bool:
    """Whether a warp is to take a row."""
    return call["gamma"].size <= (WARP_FEATURES if call["mean"].size >= MANY_ROWS else FEW_FEATURES)


def _walks(
    tensors: Sequence[TensorSpec], statistics: Sequence[TensorSpec], parameters: Sequence[TensorSpec]
) -> _Walks | None:
    """Of the rows of the tensors and of the statistics, of the features of the tensors and the parameters.

    Behind them whether a lane takes neighbouring features, which extents tell, for sums must not depend on strides;
    and whether those lie as packs.
    """
    first, axes = tensors[0], statistics[0].ndim
    rows = walk(first.shape[:axes], [*(axis_spec(range(axes), spec) for spec in tensors), *statistics])
    behind = range(axes, first.ndim)
    features = walk(first.shape[axes:], [*(axis_spec(behind, spec) for spec in tensors), *parameters])
    if rows is None or features is None:
        return None
    each = neighbours(behind, first)
    packs = features["mode"] == FLAT and not (rows["strides"][: len(tensors)] % each).any()
    return rows, features, np.uint32(each > 1), np.uint32(packs)


def _by_warps(
    kernel: str, walks: _Walks | None, operands: Sequence[TensorSpec], types: Types, *values: Value
) -> Routine | None:
    if walks is None:
        return None
    grid = warps(int(walks[0]["count"]))
    return Routine().launch(FILE, kernel, *walks, *operands, *values, types=types, grid=grid)


def _grouped_forward(call: Call) -> Routine | None:
    """A row is a group of a sample."""
    types = types_of(call.all("x", "y"), call.all("gamma", "beta", "mean", "inv_std"))
    return None if types is None else normalize_long_rows(call, types, _view(call))


def _grouped_derivative(call: Call) -> Routine | None:
    """A row is a group of a sample."""
    types = types_of(call.all("dy", "x", "dx"), call.all("gamma", "mean", "inv_std"))
    return None if types is None else propagate_long_rows(call, types, _view(call))


def _grouped_gradient(call: Call) -> Routine | None:
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
    "layer_norm": _forward,
    "layer_norm_derivative": _derivative,
    "layer_norm_gradient": _gradient,
    "group_norm": _grouped_forward,
    "group_norm_derivative": _grouped_derivative,
    "group_norm_gradient": _grouped_gradient,
}
