"""What is larger, element by element: extremes of two, bounds, comparisons, and the choice by a mask."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.elementwise import mapped
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.kernel_set import TensorSpec

_MASK = np.dtype(np.bool_)


def _float(kernel: str, y: TensorSpec, *reads: TensorSpec, values: tuple[float, ...] = ()) -> Routine | None:
    """The kernel for floats. values: its settings."""
    settings = tuple(map(np.float64, values))
    known = y.dtype.name in FLOATS
    return mapped("ordering.cu", kernel, y, *reads, values=settings, types={"S": _MASK}) if known else None


def absolute(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """|x|."""
    return _float("absolute", y, x)


def absolute_derivative(dy: TensorSpec, x: TensorSpec, dx: TensorSpec) -> Routine | None:
    """dy times the sign of x."""
    return _float("absolute_derivative", dx, dy, x)


def clip(x: TensorSpec, y: TensorSpec, *, low: float, high: float) -> Routine | None:
    """Between the bounds."""
    return _float("clip", y, x, values=(low, high))


def clip_derivative(dy: TensorSpec, x: TensorSpec, dx: TensorSpec, *, low: float, high: float) -> Routine | None:
    """dy within the bounds, else 0."""
    return _float("clip_derivative", dx, dy, x, values=(low, high))


def maximum(a: TensorSpec, b: TensorSpec, y: TensorSpec) -> Routine | None:
    """The larger one, NaN before numbers."""
    return _float("maximum", y, a, b)


def minimum(a: TensorSpec, b: TensorSpec, y: TensorSpec) -> Routine | None:
    """The smaller one, NaN before numbers."""
    return _float("minimum", y, a, b)


def maximum_derivative(dy: TensorSpec, a: TensorSpec, b: TensorSpec, da: TensorSpec) -> Routine | None:
    """dy, a half of it, or 0."""
    return _float("maximum_derivative", da, dy, a, b)


def where(condition: TensorSpec, a: TensorSpec, b: TensorSpec, y: TensorSpec) -> Routine | None:
    """a or b."""
    return _float("where", y, condition, a, b)


def compare(a: TensorSpec, b: TensorSpec, y: TensorSpec, *, relation: str) -> Routine | None:
    """1 or 0, or of bool."""
    if a.dtype.name not in FLOATS or (y.dtype.name not in FLOATS and y.dtype != _MASK):
        return None
    return mapped("compare.cu", relation, y, a, b, types={"S": a.dtype})
