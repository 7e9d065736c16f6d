"""Losses and their derivatives."""

from __future__ import annotations

from math import prod

import numpy as np

from singa_lite.kernels.cuda_kernels.along import mapped_along
from singa_lite.kernels.cuda_kernels.elementwise import mapped
from singa_lite.kernels.cuda_kernels.positions import (
    add_means,
    is_rows,
    launch,
    positions_of,
    result_of_positions,
    supports,
)
from singa_lite.kernels.cuda_kernels.reduction import MOST, BufferAs, add_sum, computed, contiguous, row_shares
from singa_lite.kernels.cuda_kernels.routine import Routine, Types, Value
from singa_lite.kernels.cuda_kernels.walk import walk
from singa_lite.kernels.kernel_set import TensorSpec

CLASSES = "cross_entropy.cu"
SAMPLES = "sample_losses.cu"

#: `Samples` of sample_losses.cu.
_SAMPLES = np.dtype([(name, "i8") for name in ("count", "x_step", "target_step", "result_step", "chunk")])


def softmax_cross_entropy(x: TensorSpec, target: TensorSpec, losses: TensorSpec, p: TensorSpec) -> Routine | None:
    """Each position's loss by a team of threads; then the means, if a sample has several positions."""
    if not supports(x, target, losses, p):
        return None
    routine = Routine()
    result = result_of_positions(routine, x, losses)
    types = {"T": x.dtype, "S": target.dtype, "L": result.spec.dtype}
    kernel = "cross_entropy_of_rows" if is_rows(x, target) else "cross_entropy_of_ids"
    seen, operands = (result.spec, x, target, p), (x, target, result.buffer, p)
    done = launch(routine, CLASSES, kernel, x, seen, *operands, types=types)
    return routine if done and add_means(routine, x, result, losses) else None


def softmax_cross_entropy_derivative(
    dlosses: TensorSpec, p: TensorSpec, target: TensorSpec, dx: TensorSpec
) -> Routine | None:
    """Each position by a team of threads, as in `softmax_cross_entropy`."""
    if not supports(p, target, dlosses, dx):
        return None
    routine = Routine()
    types = {"T": p.dtype, "S": target.dtype, "L": p.dtype}
    kernel = f"cross_entropy_of_{'rows' if is_rows(p, target) else 'ids'}_derivative"
    arguments = (dlosses, p, target, dx, np.float64(positions_of(p)))
    return routine if launch(routine, CLASSES, kernel, p, (dx, p, target, dlosses), *arguments, types=types) else None


def sigmoid_cross_entropy(x: TensorSpec, target: TensorSpec, losses: TensorSpec) -> Routine | None:
    """Means over samples."""
    return _mean_over_samples("sigmoid_cross_entropy", x, target, losses)


def sigmoid_cross_entropy_derivative(
    dlosses: TensorSpec, x: TensorSpec, target: TensorSpec, dx: TensorSpec
) -> Routine | None:
    """Element by element."""
    return _with_factors("sigmoid_cross_entropy_derivative", dlosses, x, target, dx)


def squared_error(x: TensorSpec, target: TensorSpec, y: TensorSpec) -> Routine | None:
    """Element by element."""
    return mapped(SAMPLES, "squared_error", y, x, target, types=_types(x, target)) if _supports(x, target, y) else None


def squared_error_derivative(dy: TensorSpec, x: TensorSpec, target: TensorSpec, dx: TensorSpec) -> Routine | None:
    """Element by element."""
    if not _supports(x, target, dy, dx):
        return None
    return mapped(SAMPLES, "squared_error_derivative", dx, dy, x, target, types=_types(x, target))


def huber(x: TensorSpec, target: TensorSpec, losses: TensorSpec, *, delta: float) -> Routine | None:
    """Means over samples."""
    return _mean_over_samples("huber", x, target, losses, np.float64(delta))


def huber_derivative(
    dlosses: TensorSpec, x: TensorSpec, target: TensorSpec, dx: TensorSpec, *, delta: float
) -> Routine | None:
    """Element by element."""
    return _with_factors("huber_derivative", dlosses, x, target, dx, np.float64(delta))


def _supports(x: TensorSpec, target: TensorSpec, *others: TensorSpec) -> bool:
    """Whether the kernels do dtypes like these: all but the target as x."""
    return supports(x, target, *others) and is_rows(x, target)


def _types(x: TensorSpec, target: TensorSpec) -> Types:
    return {"T": x.dtype, "S": target.dtype, "L": x.dtype}


def _with_factors(
    kernel: str, dlosses: TensorSpec, x: TensorSpec, target: TensorSpec, dx: TensorSpec, *values: Value
) -> Routine | None:
    """A derivative of a mean over samples, element by element with the sample's own factor."""
    if not _supports(x, target, dlosses, dx):
        return None
    given = (np.float64(prod(x.shape[1:])), *values)
    return mapped_along(0, SAMPLES, kernel, dx, x, target, dlosses, values=given, types=_types(x, target))


def _mean_over_samples(
    kernel: str, x: TensorSpec, target: TensorSpec, losses: TensorSpec, *values: Value
) -> Routine | None:
    """losses = means over each sample; in two stages where the samples are few."""
    if not _supports(x, target, losses):
        return None
    samples, elements = x.shape[0], prod(x.shape[1:])
    found = walk(x.shape[1:], [_of_one_sample(x), _of_one_sample(target)])
    if found is None or max(samples, elements) >= MOST:
        return None
    shares = row_shares(samples, elements, x.dtype)
    routine = Routine()
    result = BufferAs(losses, losses)
    if shares.chunks > 1:
        shape, dtype = (samples, shares.chunks), computed(x.dtype)
        result = BufferAs(routine.temporary(shape, dtype), contiguous(shape, dtype))
    struct = np.zeros((), _SAMPLES)
    for name, spec in (("x_step", x), ("target_step", target), ("result_step", result.spec)):
        struct[name] = spec.strides[0] // spec.dtype.itemsize
    struct["count"], struct["chunk"] = samples, shares.chunk
    whole = result.buffer is losses
    arguments = (found, struct, x, target, result.buffer, np.float64(1 / elements if whole else 1), *values)
    types = {"T": x.dtype, "S": target.dtype, "L": result.spec.dtype}
    grid = (shares.blocks, shares.chunks)
    routine.launch(SAMPLES, kernel, *arguments, types=types, grid=grid, block=shares.block)
    return routine if whole or add_sum(routine, result, BufferAs(losses, losses), (1,), 1 / elements) else None


def _of_one_sample(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(spec.shape[1:], spec.dtype, spec.strides[1:])
