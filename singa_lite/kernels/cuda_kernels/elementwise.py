"""Element by element, with broadcasting."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.bounds import bound_of
from singa_lite.kernels.cuda_kernels.routine import THREADS, BufferView, Routine, Types, Value, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS, TYPES
from singa_lite.kernels.cuda_kernels.walk import walk
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "elementwise.cu"


def mapped(
    file: str,
    kernel: str,
    y: TensorSpec,
    *reads: TensorSpec,
    values: tuple[Value, ...] = (),
    types: Types | None = None,
) -> Routine | None:
    """A kernel `kernel(Walk<N>, *reads, y, *values)` of a file, over the elements of y, to which the reads broadcast.

    types: beside T, the dtype of y and of all reads that are not named there. None for dtypes and shapes that it cannot
    do: more axes than a walk has, dtypes other than floats.
    """
    given = {"T": y.dtype, **(types or {})}
    if not all(spec.dtype in given.values() for spec in reads) or y.dtype.name not in TYPES:
        return None
    found = walk(y.shape, (y, *reads))
    if found is None:
        return None
    operands: tuple[BufferView, ...] = (*reads, y)
    vector = max(1, 16 // y.dtype.itemsize)
    grid = blocks(y.size, THREADS * vector)
    return Routine().launch(file, kernel, found, *operands, *values, types=given, grid=grid)


def _float(kernel: str, y: TensorSpec, *reads: TensorSpec, values: tuple[Value, ...] = ()) -> Routine | None:
    """`mapped` for floats alone."""
    return mapped(FILE, kernel, y, *reads, values=values) if y.dtype.name in FLOATS else None


def copy(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """Converts as C does; x may broadcast."""
    if x.dtype.name not in TYPES:
        return None
    return mapped("copy.cu", "copy", y, x, types={"S": x.dtype})


def fill(y: TensorSpec, *, value: float) -> Routine | None:
    """The value converted once, on the host."""
    return mapped("fill.cu", "fill", y, values=(np.array(value).astype(y.dtype),))


def add(a: TensorSpec, b: TensorSpec, y: TensorSpec, *, activation: str = "") -> Routine | None:
    """a + b, and the activation before the sum is stored."""
    bound = bound_of(activation)
    if bound is None:
        return None
    return _float("add_activation", y, a, b, values=(bound,)) if activation else _float("add", y, a, b)


def subtract(a: TensorSpec, b: TensorSpec, y: TensorSpec) -> Routine | None:
    """a - b."""
    return _float("subtract", y, a, b)


def multiply(a: TensorSpec, b: TensorSpec, y: TensorSpec) -> Routine | None:
    """a * b."""
    return _float("multiply", y, a, b)


def divide(a: TensorSpec, b: TensorSpec, y: TensorSpec) -> Routine | None:
    """a / b."""
    return _float("divide", y, a, b)


def scale(x: TensorSpec, y: TensorSpec, *, alpha: float, beta: float) -> Routine | None:
    """alpha * x + beta."""
    return _float("scale", y, x, values=(np.float64(alpha), np.float64(beta)))


def power(x: TensorSpec, y: TensorSpec, *, exponent: float) -> Routine | None:
    """Squares, square roots and reciprocals by themselves."""
    return _float("power", y, x, values=(np.float64(exponent),))


def exp(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """e ** x."""
    return _float("exponential", y, x)


def log(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """Natural logarithm."""
    return _float("logarithm", y, x)


def differs(x: TensorSpec, y: TensorSpec, *, value: int) -> Routine | None:
    """1 where x is not the value."""
    if y.dtype.name not in FLOATS or x.dtype.kind not in "iu":
        return None
    return mapped("differs.cu", "differs", y, x, values=(np.int64(value),), types={"S": x.dtype})
