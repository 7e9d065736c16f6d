"""Batch normalization going back: partial sums over slabs of each channel, the gradients, then dx from them.

The derivative of an activation behind the normalization is taken on the way: its mask is worked out from x again, by
the arithmetic of `batch_norm.py`. A sum of derivatives is made before dx is stored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from singa_lite.kernels.cuda_kernels.batch_norm import CHANNELS
from singa_lite.kernels.cuda_kernels.bounds import bound_of
from singa_lite.kernels.cuda_kernels.plane import PASS_BLOCKS, computed, partial_results, plane, types_of, warps
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine
from singa_lite.kernels.cuda_kernels.walk import walk
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "batch_norm_derivative.cu"


class _Mask(NamedTuple):
    """What an activation's derivative goes by, beside mean and inv_std. bound: its number."""

    gamma: TensorSpec
    beta: TensorSpec
    bound: np.int32


def batch_norm_derivative(
    dy: TensorSpec,
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec | None,
    mean: TensorSpec,
    inv_std: TensorSpec,
    other: TensorSpec | None,
    dx: TensorSpec,
    dgamma: TensorSpec,
    dbeta: TensorSpec,
    *,
    activation: str = "",
) -> Routine | None:
    """The gradients, then dx from them. dy is masked wherever it is read, so that its masked form is stored nowhere."""
    vectors = mean, inv_std, gamma, dgamma, dbeta
    if not activation:
        kernel, tensors = (
            ("batch_derivative", (dy, x, dx)) if other is None else ("batch_derivative_add", (dy, x, dx, other))
        )
        return _derivative(kernel, tensors, vectors)
    bound = bound_of(activation)
    if bound is None or beta is None or beta.dtype != gamma.dtype or other is not None:
        return None
    return _derivative("batch_derivative_masked", (dy, x, dx), vectors, _Mask(gamma, beta, bound))


def batch_norm_gradient(
    dy: TensorSpec, x: TensorSpec, mean: TensorSpec, inv_std: TensorSpec, dgamma: TensorSpec, dbeta: TensorSpec
) -> Routine | None:
    """Steps: sums of slabs, then of channels."""
    return _gradient((dy, x), (mean, inv_std, dgamma, dbeta))


def _derivative(
    kernel: str, tensors: tuple[TensorSpec, ...], vectors: tuple[TensorSpec, ...], mask: _Mask | None = None
) -> Routine | None:
    """tensors: dy, x, dx and what is added; vectors: mean, inv_std, gamma, dgamma, dbeta."""
    dy, x, dx, *others = tensors
    mean, inv_std, _, dgamma, dbeta = vectors
    types, found = types_of(tensors, vectors), plane(CHANNELS, tensors, PASS_BLOCKS)
    routine = _gradient((dy, x), (mean, inv_std, dgamma, dbeta), mask)
    if types is None or routine is None or found is None:
        return None
    masking: tuple[Argument, ...] = ()
    if mask is not None:
        masking = _masking(found.kept, mean, inv_std, mask), mask.beta, mask.bound
    arguments: tuple[Argument, ...] = found.struct, walk((found.kept,), vectors), dy, x, *vectors, dx, *others, *masking
    return routine.launch(FILE, kernel, *arguments, types=types, grid=found.blocks)


def _gradient(
    tensors: tuple[TensorSpec, TensorSpec], vectors: tuple[TensorSpec, ...], mask: _Mask | None = None
) -> Routine | None:
    """tensors: dy, x; vectors: mean, inv_std, dgamma, dbeta."""
    (dy, x), (mean, inv_std, *gradients) = tensors, vectors
    types, found = types_of(tensors, vectors), plane(CHANNELS, tensors)
    if types is None or found is None:
        return None
    routine = Routine()
    partial = [partial_results(routine, found, computed(x)) for _ in range(2)]
    step = np.int64(mean.strides[0] // mean.dtype.itemsize)
    first: tuple[Argument, ...] = found.struct, dy, x, mean, step, *partial
    if mask is not None:
        masking = _masking(found.kept, mean, inv_std, mask)
        first = found.struct, masking, dy, x, mean, inv_std, *mask, step, *partial
    kernel = "batch_slab_gradients" if mask is None else "batch_slab_masked"
    routine.launch(FILE, kernel, *first, types=types, grid=found.blocks)
    results = inv_std, *gradients
    second: tuple[Argument, ...] = walk((found.kept,), results), *partial, np.uint32(found.slabs), *results
    return routine.launch(FILE, "batch_gradients", *second, types=types, grid=warps(found.kept))


def _masking(channels: int, mean: TensorSpec, inv_std: TensorSpec, mask: _Mask) -> Argument:
    """Where the vectors that a mask is made of have their elements."""
    return walk((channels,), (mean, inv_std, mask.gamma, mask.beta))
