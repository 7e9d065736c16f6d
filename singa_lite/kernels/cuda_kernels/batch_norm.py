"""Batch normalization: partial sums over slabs of each channel, their sums, then the elements.

A sum and an activation behind it are done on the way to the result, which is stored once.
"""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.bounds import bound_of
from singa_lite.kernels.cuda_kernels.plane import PASS_BLOCKS, add_moments, plane, types_of, warps
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine
from singa_lite.kernels.cuda_kernels.walk import walk

FILE = "batch_norm.cu"
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
    routine.launch(FILE, "batch_statistics", *values, *results, types=types, grid=warps(found.kept))
    return routine.then(behind)


def _normalize(call: Call) -> Routine | None:
    """y, summed and bounded before it is stored."""
    kernel = "batch_normalize" if call.optional("other") is None else "batch_normalize_add"
    return _normalized(call, kernel, ["mean", "inv_std"], bound_of(call.text("activation")))


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
    return Routine().launch(FILE, kernel, *arguments, types=types, grid=found.blocks)


KERNELS: dict[str, CallBuilder[Routine]] = {
    "batch_norm": _forward,
    "batch_normalize": _normalize,
    "batch_norm_inference": _inference,
}
