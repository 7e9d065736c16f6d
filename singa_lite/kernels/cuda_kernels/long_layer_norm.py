"""Layer normalization of few or long rows: partial sums over slabs of each row, their sums, then the elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.plane import (
    add_moments,
    partial_results,
    pass_blocks,
    plane,
)
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine, Types
from singa_lite.kernels.cuda_kernels.source import computed
from singa_lite.kernels.cuda_kernels.walk import axis_spec, dense, spread, walk
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "long_layer_norm.cu"

#: How an operand is looked at: (rows..., *features), or what broadcasts to that; the same bytes as it has.
View = Callable[[TensorSpec], TensorSpec]


def _as_it_is(spec: TensorSpec) -> TensorSpec:
    return spec


def normalize_long_rows(call: Call, types: Types, view: View = _as_it_is) -> Routine | None:
    """layer_norm, of x, y, gamma and beta as `view` shows them."""
    x, gamma, beta, mean, inv_std = reads = call.all("x", "gamma", "beta", "mean", "inv_std")
    y, axes, whole = call["y"], range(mean.ndim), view(x)
    found = plane(axes, [whole])
    rows = walk(mean.shape, (axis_spec(axes, whole), mean, inv_std))
    elements = walk(whole.shape, (view(y), whole, view(gamma), view(beta), *_spread(whole, mean, inv_std)))
    if found is None or rows is None or elements is None:
        return None
    routine = Routine()
    partial = add_moments(routine, x, found)
    counts = np.uint32(found.slabs), np.int64(found.slab), np.int64(found.summed), np.float64(call.number("epsilon"))
    arguments: tuple[Argument, ...] = rows, *partial, *counts, mean, inv_std
    routine.launch(FILE, "row_statistics", *arguments, types=types, grid=found.warps)
    return routine.launch(FILE, "row_normalize", elements, *reads, y, types=types, grid=pass_blocks(y))


def propagate_long_rows(call: Call, types: Types, view: View = _as_it_is) -> Routine | None:
    """layer_norm_derivative, of dy, x, gamma and dx as `view` shows them.

    Rows' offsets and slopes are kept in scratch, in C order.
    """
    dy, x, gamma, mean, inv_std, dx = call.all("dy", "x", "gamma", "mean", "inv_std", "dx")
    axes, (top, whole, scale) = range(mean.ndim), map(view, (dy, x, gamma))
    average = dense(mean.shape, computed(x.dtype))
    found = plane(axes, (top, whole, _broadcast_spec(scale, whole.shape)))
    means = walk(mean.shape, (axis_spec(axes, top), mean))
    rows = walk(mean.shape, (axis_spec(axes, top), inv_std, average, average))
    elements = walk(whole.shape, (view(dx), top, whole, scale, *_spread(whole, mean, inv_std, average, average)))
    if found is None or means is None or rows is None or elements is None:
        return None
    routine = Routine()
    partial = [partial_results(routine, found, computed(x.dtype)) for _ in range(2)]
    averages = [routine.temporary(average.shape, average.dtype) for _ in range(2)]
    first: tuple[Argument, ...] = found.struct, means, dy, x, gamma, mean, *partial
    routine.launch(FILE, "row_slab_projections", *first, types=types, grid=found.blocks)
    second: tuple[Argument, ...] = rows, *partial, np.uint32(found.slabs), np.int64(found.summed), inv_std, *averages
    routine.launch(FILE, "row_projections", *second, types=types, grid=found.warps)
    third: tuple[Argument, ...] = elements, dy, x, gamma, mean, inv_std, *averages, dx
    return routine.launch(FILE, "row_derivative", *third, types=types, grid=pass_blocks(dx))


def _spread(x: TensorSpec, *vectors: TensorSpec) -> list[TensorSpec]:
    """The specs of vectors of rows, broadcast to x."""
    return [spread(spec, range(spec.ndim), x.shape) for spec in vectors]


def _broadcast_spec(spec: TensorSpec, shape: Sequence[int]) -> TensorSpec:
    """The spec broadcast to a shape, whose last axes it has."""
    return spread(spec, range(len(shape) - spec.ndim, len(shape)), shape)
