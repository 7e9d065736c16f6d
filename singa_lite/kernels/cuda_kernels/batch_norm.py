"""Batch normalization: partial sums over slabs of each channel, their sums, then the elements.

A sum and an activation behind it are done on the way to the result, which is stored once.
"""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.bounds import bound_of
from singa_lite.kernels.cuda_kernels.plane import PASS_BLOCKS, add_moments, plane, types_of, warps
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine
from singa_lite.kernels.cuda_kernels.walk import walk
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "batch_norm.cu"
CHANNELS = (1,)


def batch_norm(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    running_mean: TensorSpec,
    running_var: TensorSpec,
    other: TensorSpec | None,
    y: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    *,
    momentum: float,
    epsilon: float,
    activation: str = "",
) -> Routine | None:
    """Steps: the moments of slabs, the statistics of channels from them, then y."""
    results, found = (running_mean, running_var, mean, inv_std), plane(CHANNELS, [x])
    behind = batch_normalize(x, gamma, beta, mean, inv_std, other, y, activation=activation)
    if found is None or behind is None or types_of((x,), results) is None:
        return None
    routine = Routine()
    partial = add_moments(routine, x, found)
    counts = np.uint32(found.slabs), np.int64(found.slab), np.int64(found.summed)
    values = walk((found.kept,), results), *partial, *counts, np.float64(momentum), np.float64(epsilon)
    types = {"T": x.dtype, "S": running_mean.dtype}
    routine.launch(FILE, "batch_statistics", *values, *results, types=types, grid=warps(found.kept))
    return routine.then(behind)


def batch_normalize(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    other: TensorSpec | None,
    y: TensorSpec,
    *,
    activation: str = "",
) -> Routine | None:
    """y, summed and bounded before it is stored."""
    kernel, tensors = ("batch_normalize", (x, y)) if other is None else ("batch_normalize_add", (x, y, other))
    return _normalized(kernel, tensors, (mean, inv_std, gamma, beta), bound_of(activation))


def batch_norm_inference(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    running_mean: TensorSpec,
    running_var: TensorSpec,
    y: TensorSpec,
    *,
    epsilon: float,
) -> Routine | None:
    """One step."""
    return _normalized("batch_inference", (x, y), (running_mean, running_var, gamma, beta), np.float64(epsilon))


def _normalized(
    kernel: str,
    tensors: tuple[TensorSpec, ...],
    vectors: tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec],
    value: np.int32 | np.float64 | None,
) -> Routine | None:
    """The step that writes y. tensors: x, y and what is added; vectors: in the kernel's order; value: its last."""
    types, found = types_of(tensors, vectors), plane(CHANNELS, tensors, PASS_BLOCKS)
    if types is None or found is None or value is None:
        return None
    x, y, *others = tensors
    arguments: tuple[Argument, ...] = found.struct, walk((found.kept,), vectors), x, *vectors, y, *others, value
    return Routine().launch(FILE, kernel, *arguments, types=types, grid=found.blocks)
