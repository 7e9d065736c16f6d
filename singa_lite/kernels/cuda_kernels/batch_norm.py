"""Batch normalization: partial sums over slabs of each channel, their sums, then the elements.

A sum and an activation behind it are done on the way to the result, which is stored once. Going back, its derivative is
taken on the way: its mask is worked out from x again, by the arithmetic of the normalization. A sum of derivatives is
made before dx is stored.
"""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.elementwise import bound_number
from singa_lite.kernels.cuda_kernels.plane import PASS_BLOCKS, add_moments, partial_results, plane, types_of
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine
from singa_lite.kernels.cuda_kernels.source import computed
from singa_lite.kernels.cuda_kernels.walk import step, walk

FORWARD, BACK = "batch_norm.cu", "batch_norm_derivative.cu"
CHANNELS = (1,)


def _forward(call: Call) -> Routine | None:
    """Steps: the moments of slabs, the statistics of channels from them, then y."""
    x, results = call["x"], call.all("running_mean", "running_var", "mean", "inv_std")
    found, behind = plane(CHANNELS, [x]), _normalize(call)
    if found is None or behind is None or types_of([x], results) is None:
        return None
    routine = Routine()
    partial = add_moments(routine, x, found)
    counts = np.uint32(found.slabs), np.int64(found.slab), np.int64(found.summed)
    numbers = np.float64(call.number("momentum")), np.float64(call.number("epsilon"))
    values = walk((found.kept,), results), *partial, *counts, *numbers
    types = {"T": x.dtype, "S": results[0].dtype}
    routine.launch(FORWARD, "batch_statistics", *values, *results, types=types, grid=found.warps)
    return routine.then(behind)


def _normalize(call: Call) -> Routine | None:
    """y, summed and bounded before it is stored."""
    kernel = "batch_normalize" if call.optional("other") is None else "batch_normalize_add"
    return _normalized(call, kernel, ["mean", "inv_std"], bound_number(call))


def _inference(call: Call) -> Routine | None:
    """One step."""
    statistics = ["running_mean", "running_var"]
    return _normalized(call, "batch_inference", statistics, np.float64(call.number("epsilon")))


def _normalized(call: Call, kernel: str, statistics: list[str], value: np.int32 | np.float64 | None) -> Routine | None:
    """The step that writes y. kernel: of the source; value: its last argument."""
    tensors, vectors = call.all("x", "y", "other"), call.all(*statistics, "gamma", "beta")
    types, found = types_of(tensors, vectors), plane(CHANNELS, tensors, PASS_BLOCKS)
    if types is None or found is None or value is None:
        return None
    x, *results = tensors
    arguments: tuple[Argument, ...] = found.struct, walk((found.kept,), vectors), x, *vectors, *results, value
    return Routine().launch(FORWARD, kernel, *arguments, types=types, grid=found.blocks)


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
        kernel, masking = "batch_derivative_masked", [_masking(call), beta, bound_number(call)]
    walked = walk((found.kept,), vectors)
    arguments: tuple[Argument, ...] = found.struct, walked, dy, x, *vectors, *results, *masking
    return routine.launch(BACK, kernel, *arguments, types=types, grid=found.blocks)


def _gradient(call: Call) -> Routine | None:
    """Steps: sums of slabs, then of channels."""
    dy, x, mean, beta = call["dy"], call["x"], call["mean"], call.optional("beta")
    vectors, bound = call.all("mean", "inv_std", "dgamma", "dbeta", "gamma", "beta"), bound_number(call)
    types, found = types_of((dy, x), vectors), plane(CHANNELS, (dy, x))
    if types is None or found is None or bound is None:
        return None
    routine = Routine()
    partial = [partial_results(routine, found, computed(x.dtype)) for _ in range(2)]
    kernel = "batch_slab_gradients"
    first: tuple[Argument, ...] = found.struct, dy, x, mean, step(mean), *partial
    if beta is not None:
        masking = call["inv_std"], call["gamma"], beta, bound
        kernel, first = "batch_slab_masked", (found.struct, _masking(call), dy, x, mean, *masking, step(mean), *partial)
    routine.launch(BACK, kernel, *first, types=types, grid=found.blocks)
    results = call.all("inv_std", "dgamma", "dbeta")
    second: tuple[Argument, ...] = walk((found.kept,), results), *partial, np.uint32(found.slabs), *results
    return routine.launch(BACK, "batch_gradients", *second, types=types, grid=found.warps)


def _masking(call: Call) -> Argument:
    """Where the vectors that a mask is made of have their elements."""
    return walk(call["mean"].shape, call.all("mean", "inv_std", "gamma", "beta"))


KERNELS: dict[str, CallBuilder[Routine]] = {
    "batch_norm": _forward,
    "batch_normalize": _normalize,
    "batch_norm_inference": _inference,
    "batch_norm_derivative": _derivative,
    "batch_norm_gradient": _gradient,
}
