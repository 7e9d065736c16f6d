"""L2 and local response normalization.

L2: partial sums over slabs of each sample, their sums, then the elements. Local response: a thread for each element,
which goes over the channels beside it.
"""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.plane import MOST_INDICES, Plane, partial_results, pass_blocks, plane
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import are_floats, computed
from singa_lite.kernels.cuda_kernels.walk import dense, spread, step, walk
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Temporary

FILE = "l2_norm.cu"
SAMPLES = (0,)


def _norm(call: Call) -> Routine | None:
    """Steps: sums of squares, norms, y."""
    x, y, norm = call.all("x", "y", "norm")
    found = plane(SAMPLES, (x, x))
    elements = walk(x.shape, (y, x, spread(norm, SAMPLES, x.shape)))
    if found is None or elements is None or not are_floats(x, y, norm):
        return None
    types, routine = {"T": x.dtype}, Routine()
    counts = np.uint32(found.slabs), np.int64(found.kept), step(norm), np.float64(call.number("epsilon"))
    arguments = _add_dots(routine, found, x, x), *counts, norm
    routine.launch(FILE, "l2_norms", *arguments, types=types, grid=found.warps)
    return routine.launch(FILE, "l2_divide", elements, x, norm, y, types=types, grid=pass_blocks(y))


def _derivative(call: Call) -> Routine | None:
    """Steps: sums of dy * y, then dx."""
    dy, y, norm, dx = call.all("dy", "y", "norm", "dx")
    found = plane(SAMPLES, (dy, y))
    total = dense(norm.shape, computed(y.dtype))
    elements = walk(y.shape, (dx, dy, y, *(spread(spec, SAMPLES, y.shape) for spec in (norm, total))))
    if found is None or elements is None or not are_floats(dy, y, norm, dx):
        return None
    types, routine = {"T": y.dtype}, Routine()
    totals = routine.temporary(total.shape, total.dtype)
    arguments = _add_dots(routine, found, dy, y), np.uint32(found.slabs), np.int64(found.kept), totals
    routine.launch(FILE, "l2_totals", *arguments, types=types, grid=found.warps)
    return routine.launch(FILE, "l2_derivative", elements, dy, y, norm, totals, dx, types=types, grid=pass_blocks(dx))


def _add_dots(routine: Routine, found: Plane, a: TensorSpec, b: TensorSpec) -> Temporary:
    """A step that makes each slab's sum of a * b."""
    dots = partial_results(routine, found, "float64")
    routine.launch(FILE, "slab_dots", found.struct, a, b, dots, types={"T": a.dtype}, grid=found.blocks)
    return dots


def _response_norm(call: Call) -> Routine | None:
    """One step, which writes y and scale."""
    return _windows(call, call.number("alpha"), call.number("beta"), call.number("k"))


def _response_derivative(call: Call) -> Routine | None:
    """One step."""
    alpha, beta = call.number("alpha"), call.number("beta")
    return _windows(call, 2 * alpha * beta, beta)


def _windows(call: Call, factor: float, *numbers: float) -> Routine | None:
    """factor: of all channels of a window; numbers: of the kernel behind it."""
    specs, size = tuple(call.operands.values()), int(call.number("size"))
    found = plane((1,), specs)
    if found is None or not are_floats(*specs) or specs[0].size >= MOST_INDICES:
        return None
    settings = map(np.float64, (factor / size, *numbers))
    arguments: list[Argument] = [found.struct, *specs, np.int32(size // 2), *settings]
    types, grid = {"T": specs[0].dtype}, blocks(specs[0].size)
    return Routine().launch("lrn.cu", call.kernel, *arguments, types=types, grid=grid)


KERNELS: dict[str, CallBuilder[Routine]] = {
    "l2_norm": _norm,
    "l2_norm_derivative": _derivative,
    "lrn": _response_norm,
    "lrn_derivative": _response_derivative,
}
