"""L2 normalization: partial sums over slabs of each sample, their sums, then the elements."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.plane import Plane, computed, partial_results, pass_blocks, plane, spread, warps
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.cuda_kernels.walk import walk
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Temporary

FILE = "l2_norm.cu"
SAMPLES = (0,)


def l2_norm(x: TensorSpec, y: TensorSpec, norm: TensorSpec, *, epsilon: float) -> Routine | None:
    """Steps: sums of squares, norms, y."""
    found = plane(SAMPLES, (x, x))
    elements = walk(x.shape, (y, x, spread(norm, SAMPLES, x.shape)))
    if found is None or elements is None or not _same_float_type(x, y, norm):
        return None
    types = {"T": x.dtype}
    routine = Routine()
    counts = np.uint32(found.slabs), np.int64(found.kept), np.int64(norm.strides[0] // norm.dtype.itemsize)
    arguments = _add_dots(routine, found, x, x), *counts, np.float64(epsilon), norm
    routine.launch(FILE, "l2_norms", *arguments, types=types, grid=warps(found.kept))
    return routine.launch(FILE, "l2_divide", elements, x, norm, y, types=types, grid=pass_blocks(y))


def l2_norm_derivative(dy: TensorSpec, y: TensorSpec, norm: TensorSpec, dx: TensorSpec) -> Routine | None:
    """Steps: sums of dy * y, then dx."""
    found = plane(SAMPLES, (dy, y))
    total = TensorSpec(norm.shape, computed(y), (computed(y).itemsize,))
    elements = walk(y.shape, (dx, dy, y, *(spread(spec, SAMPLES, y.shape) for spec in (norm, total))))
    if found is None or elements is None or not _same_float_type(dy, y, norm, dx):
        return None
    types = {"T": y.dtype}
    routine = Routine()
    totals = routine.temporary(total.shape, total.dtype)
    arguments = _add_dots(routine, found, dy, y), np.uint32(found.slabs), np.int64(found.kept), totals
    routine.launch(FILE, "l2_totals", *arguments, types=types, grid=warps(found.kept))
    return routine.launch(FILE, "l2_derivative", elements, dy, y, norm, totals, dx, types=types, grid=pass_blocks(dx))


def _add_dots(routine: Routine, found: Plane, a: TensorSpec, b: TensorSpec) -> Temporary:
    """A step that makes each slab's sum of a * b."""
    dots = partial_results(routine, found, "float64")
    routine.launch(FILE, "slab_dots", found.struct, a, b, dots, types={"T": a.dtype}, grid=found.blocks)
    return dots


def _same_float_type(*specs: TensorSpec) -> bool:
    """Whether all are floats of one type."""
    return specs[0].dtype.name in FLOATS and all(spec.dtype == specs[0].dtype for spec in specs)
