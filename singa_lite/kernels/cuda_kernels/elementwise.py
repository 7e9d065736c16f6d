"""Element by element, with broadcasting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from singa_lite.kernels.cuda_kernels.routine import THREADS, Operand, Routine, Value, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS, TYPES
from singa_lite.kernels.cuda_kernels.walk import walk
from singa_lite.kernels.kernel_set import Form

FILE = "elementwise.cu"


def mapped(
    file: str,
    kernel: str,
    y: Form,
    *reads: Form,
    values: tuple[Value, ...] = (),
    types: Mapping[str, Any] | None = None,
) -> Routine | None:
    """A kernel `kernel(Walk<N>, *reads, y, *values)` of a file, over the elements of y, to which the reads broadcast.

    types: beside T, the dtype of y and of all reads that are not named there. None for dtypes and forms that it cannot
    do: more axes than a walk has, dtypes other than floats.
    """
    given = {"T": y.dtype, **(types or {})}
    if not all(form.dtype in given.values() for form in reads) or y.dtype.name not in TYPES:
        return None
    found = walk(y.shape, (y, *reads))
    if found is None:
        return None
    operands: tuple[Operand, ...] = (*reads, y)
    vector = max(1, 16 // y.dtype.itemsize)
    grid = blocks(y.size, THREADS * vector)
    return Routine().launch(file, kernel, found, *operands, *values, types=given, grid=grid)


def _float(kernel: str, y: Form, *reads: Form, values: tuple[Value, ...] = ()) -> Routine | None:
    """The same for floats alone."""
    return mapped(FILE, kernel, y, *reads, values=values) if y.dtype.name in FLOATS else None


def copy(x: Form, y: Form) -> Routine | None:
    """Converts as C does; x may broadcast."""
    if x.dtype.name not in TYPES:
        return None
    return mapped("copy.cu", "copy", y, x, types={"S": x.dtype})


def fill(y: Form, *, value: float) -> Routine | None:
    """The value converted once, on the host."""
    return mapped("fill.cu", "fill", y, values=(np.array(value).astype(y.dtype),))


def add(a: Form, b: Form, y: Form) -> Routine | None:
    """a + b."""
    return _float("add", y, a, b)


def subtract(a: Form, b: Form, y: Form) -> Routine | None:
    """a - b."""
    return _float("subtract", y, a, b)


def multiply(a: Form, b: Form, y: Form) -> Routine | None:
    """a * b."""
    return _float("multiply", y, a, b)


def divide(a: Form, b: Form, y: Form) -> Routine | None:
    """a / b."""
    return _float("divide", y, a, b)


def scale(x: Form, y: Form, *, alpha: float, beta: float) -> Routine | None:
    """alpha * x + beta."""
    return _float("scale", y, x, values=(np.float64(alpha), np.float64(beta)))


def power(x: Form, y: Form, *, exponent: float) -> Routine | None:
    """Squares, square roots and reciprocals by themselves."""
    return _float("power", y, x, values=(np.float64(exponent),))


def exp(x: Form, y: Form) -> Routine | None:
    """e ** x."""
    return _float("exponential", y, x)


def log(x: Form, y: Form) -> Routine | None:
    """Natural logarithm."""
    return _float("logarithm", y, x)
