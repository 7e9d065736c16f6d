"""Batch normalization: partial sums over slabs of each channel, their sums, then the elements."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.plane import (
    PASS_BLOCKS,
    add_moments,
    computed,
    partial_results,
    plane,
    types_of,
    warps,
)
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine, Types, Value
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
    y: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    *,
    momentum: float,
    epsilon: float,
) -> Routine | None:
    """Steps: the moments of slabs, the statistics of channels from them, then y."""
    types = types_of((x, y), (gamma, beta, running_mean, running_var, mean, inv_std))
    found = plane(CHANNELS, [x])
    if types is None or found is None:
        return None
    routine = Routine()
    partial = add_moments(routine, x, found)
    results = running_mean, running_var, mean, inv_std
    vectors = walk((found.kept,), results)
    counts = np.uint32(found.slabs), np.int64(found.slab), np.int64(found.summed)
    settings = np.float64(momentum), np.float64(epsilon)
    arguments: tuple[Argument, ...] = vectors, *partial, *counts, *settings, *results
    routine.launch(FILE, "batch_statistics", *arguments, types=types, grid=warps(found.kept))
    return _normalized(routine, "batch_normalize", x, (mean, inv_std, gamma, beta), y, types)


def batch_normalize(
    x: TensorSpec, gamma: TensorSpec, beta: TensorSpec, mean: TensorSpec, inv_std: TensorSpec, y: TensorSpec
) -> Routine | None:
    """y."""
    vectors = mean, inv_std, gamma, beta
    types = types_of((x, y), vectors)
    return None if types is None else _normalized(Routine(), "batch_normalize", x, vectors, y, types)


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
    vectors = running_mean, running_var, gamma, beta
    types = types_of((x, y), vectors)
    if types is None:
        return None
    return _normalized(Routine(), "batch_inference", x, vectors, y, types, np.float64(epsilon))


def _normalized(
    routine: Routine,
    kernel: str,
    x: TensorSpec,
    vectors: tuple[TensorSpec, ...],
    y: TensorSpec,
    types: Types,
    *values: Value,
) -> Routine | None:
    """The routine with a last step, which writes y."""
    found = plane(CHANNELS, (x, y), PASS_BLOCKS)
    if found is None:
        return None
    arguments: tuple[Argument, ...] = found.struct, walk((found.kept,), vectors), x, *vectors, y, *values
    return routine.launch(FILE, kernel, *arguments, types=types, grid=found.blocks)


def batch_norm_derivative(
    dy: TensorSpec,
    x: TensorSpec,
    gamma: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    dx: TensorSpec,
    dgamma: TensorSpec,
    dbeta: TensorSpec,
) -> Routine | None:
    """The gradients, then dx from them."""
    vectors = mean, inv_std, gamma, dgamma, dbeta
    types = types_of((dy, x, dx), vectors)
    routine = batch_norm_gradient(dy, x, mean, inv_std, dgamma, dbeta)
    found = plane(CHANNELS, (dy, x, dx), PASS_BLOCKS)
    if types is None or routine is None or found is None:
        return None
    arguments: tuple[Argument, ...] = found.struct, walk((found.kept,), vectors), dy, x, *vectors, dx
    return routine.launch(FILE, "batch_derivative", *arguments, types=types, grid=found.blocks)


def batch_norm_gradient(
    dy: TensorSpec, x: TensorSpec, mean: TensorSpec, inv_std: TensorSpec, dgamma: TensorSpec, dbeta: TensorSpec
) -> Routine | None:
    """Steps: sums of slabs, then of channels."""
    types = types_of((dy, x), (mean, inv_std, dgamma, dbeta))
    found = plane(CHANNELS, (dy, x))
    if types is None or found is None:
        return None
    routine = Routine()
    partial = [partial_results(routine, found, computed(x)) for _ in range(2)]
    first: tuple[Argument, ...] = found.struct, dy, x, mean, np.int64(mean.strides[0] // mean.dtype.itemsize), *partial
    routine.launch(FILE, "batch_slab_gradients", *first, types=types, grid=found.blocks)
    results = inv_std, dgamma, dbeta
    second: tuple[Argument, ...] = walk((found.kept,), results), *partial, np.uint32(found.slabs), *results
    return routine.launch(FILE, "batch_gradients", *second, types=types, grid=warps(found.kept))
