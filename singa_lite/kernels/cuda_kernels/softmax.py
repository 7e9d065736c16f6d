"""Softmax: along rows, whose elements lie one behind the other, or columns, any other lines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from singa_lite.kernels.cuda_kernels.routine import THREADS, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.cuda_kernels.walk import MOST_ELEMENTS, VECTOR_BYTES, walk
from singa_lite.kernels.kernel_set import TensorSpec

WARP = 32
#: Elements of a column that a thread takes, where that leaves no more threads than MOST_SHARES for a column.
SHARE = 8
MOST_SHARES = 32
#: Indices in a line are int, and so is the first one behind it that a thread comes to.
MOST_LENGTH = 1 << 30
#: Rows longer than that have blocks of the most threads.
LONG = 8192
MOST_THREADS = 1024


class Shape(NamedTuple):
    """How the threads of a block are laid out, and how many lines it has at a time."""

    block: tuple[int, int]
    lines: int


def softmax(x: TensorSpec, y: TensorSpec, *, axis: int) -> Routine | None:
    """e**(x - top) / its sum, top the largest."""
    return _along_lines("softmax", y, (x,), axis)


def softmax_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec, *, axis: int) -> Routine | None:
    """y * (dy - sum of dy * y)."""
    return _along_lines("softmax_derivative", dx, (dy, y), axis)


def _along_lines(name: str, y: TensorSpec, reads: tuple[TensorSpec, ...], axis: int) -> Routine | None:
    """The kernel `name`_short_rows, _long_rows or _columns of the file `name`.cu. None as `mapped` of elementwise."""
    if y.dtype.name not in FLOATS or any(read.dtype != y.dtype for read in reads):
        return None
    axis %= y.ndim
    length = y.shape[axis]
    others = [_line_starts(spec, axis) for spec in (y, *reads)]
    lines = walk(others[0].shape, others)
    if lines is None or lines["count"] >= MOST_ELEMENTS or length >= MOST_LENGTH:
        return None
    steps = [np.int64(spec.strides[axis] // spec.dtype.itemsize) for spec in (y, *reads)]
    kind, shape = _rows(length, y.dtype.itemsize)
    if not _are_rows(steps, axis, y.ndim):
        kind, shape = "columns", _columns(length)
    numbers = (np.int32(length), *(steps if kind == "columns" else ()))
    grid = blocks(int(lines["count"]), shape.lines)
    types = {"T": y.dtype}
    return Routine().launch(
        f"{name}.cu", f"{name}_{kind}", lines, *numbers, *reads, y, types=types, grid=grid, block=shape.block
    )


def _are_rows(steps: list[np.int64], axis: int, ndim: int) -> bool:
    """Whether the elements of a line lie one behind the other in all operands.

    The outermost axis is none of rows, so that results do not hang on how far apart its elements lie.
    """
    return all(step == 1 for step in steps) and (axis > 0 or ndim == 1)


def _rows(length: int, itemsize: int) -> tuple[str, Shape]:
    """A part of a warp for a row if it can keep it in registers, at most 32 numbers a lane; else a block."""
    vector = VECTOR_BYTES // itemsize
    if length <= min(1024, 4096 // itemsize):
        lanes = min(WARP, _power_of_two(-(-length // vector)))
        return "short_rows", Shape((lanes, THREADS // lanes), THREADS // lanes)
    return "long_rows", Shape((THREADS if length <= LONG else MOST_THREADS, 1), 1)


def _columns(length: int) -> Shape:
    """Several threads share a long column."""
    shares = min(MOST_SHARES, _power_of_two(-(-length // SHARE)))
    return Shape((THREADS // shares, shares), THREADS // shares)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _line_starts(spec: TensorSpec, axis: int) -> TensorSpec:
    """The first element of each line."""
    shape, strides = (a[:axis] + a[axis + 1 :] for a in (spec.shape, spec.strides))
    return TensorSpec(shape, spec.dtype, strides)
