"""Batch normalization going back: partial sums over slabs of each channel, the gradients, then dx from them.

The derivative of an activation behind the normalization is taken on the way: its mask is worked out from x again, by
the arithmetic of `batch_norm.py`. A sum of derivatives is made before dx is stored.
"""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.batch_norm import CHANNELS
from singa_lite.kernels.cuda_kernels.bounds import bound_of
from singa_lite.kernels.cuda_kernels.plane import PASS_BLOCKS, computed, partial_results, plane, types_of, warps
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine
from singa_lite.kernels.cuda_kernels.walk import walk

FILE = "batch_norm_derivative.cu"


def _derivative(call: Call) -> Routine | None:
    """The gradients, then dx from them. dy is masked wherever it is read, so that its masked form is stored nowhere."""
    tensors = call.all("dy", "x", "dx", "other")
    vectors = call.all("mean", "inv_std", "gamma", "dgamma", "dbeta")
    types, found = types_of(tensors, vectors), plane(CHANNELS, tensors, PASS_BLOCKS)
    routine, is_summed, beta = _gradient(call), call.optional("other") is not None, call.optional("beta")
    if types is None or routine is None or found is None or (beta is not None and is_summed):
        return None
    dy, x, *results = tensors
    kernel = "batch_derivative_add" if is_summed else "batch_derivative"
    masking: list[Argument] = []
    if beta is not None:
        kernel, masking = "batch_derivative_masked", [_masking(call), beta, bound_of(call.text("activation"))]
    walked = walk((found.kept,), vectors)
    arguments: tuple[Argument, ...] = found.struct, walked, dy, x, *vectors, *results, *masking
    return routine.launch(FILE, kernel, *arguments, types=types, grid=found.blocks)


def _gradient(call: Call) -> Routine | None:
    """Steps: sums of slabs, then of channels."""
    dy, x, mean, beta = call["dy"], call["x"], call["mean"], call.optional("beta")
    vectors, bound = call.all("mean", "inv_std", "dgamma", "dbeta", "gamma", "beta"), bound_of(call.text("activation"))
    types, found = types_of((dy, x), vectors), plane(CHANNELS, (dy, x))
    if types is None or found is None or bound is None:
        return None
    routine = Routine()
    partial = [partial_results(routine, found, computed(x)) for _ in range(2)]
    step = np.int64(mean.strides[0] // mean.dtype.itemsize)
    kernel = "batch_slab_gradients"
    first: tuple[Argument, ...] = found.struct, dy, x, mean, step, *partial
    if beta is not None:
        masking = call["inv_std"], call["gamma"], beta, bound
        kernel, first = "batch_slab_masked", (found.struct, _masking(call), dy, x, mean, *masking, step, *partial)
    routine.launch(FILE, kernel, *first, types=types, grid=found.blocks)
    results = call.all("inv_std", "dgamma", "dbeta")
    second: tuple[Argument, ...] = walk((found.kept,), results), *partial, np.uint32(found.slabs), *results
    return routine.launch(FILE, "batch_gradients", *second, types=types, grid=warps(found.kept))


def _masking(call: Call) -> Argument:
    """Where the vectors that a mask is made of have their elements."""
    return walk(call["mean"].shape, call.all("mean", "inv_std", "gamma", "beta"))


KERNELS: dict[str, CallBuilder[Routine]] = {"batch_norm_derivative": _derivative, "batch_norm_gradient": _gradient}
