"""Softmax: along rows, whose elements lie one behind the other, or columns, any other lines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.routine import THREADS, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import are_floats
from singa_lite.kernels.cuda_kernels.walk import MOST_ELEMENTS, VECTOR_BYTES, axis_spec, power_of_two, steps, walk

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


def _along_lines(call: Call) -> Routine | None:
    """The kernel's form for short rows, long rows or columns."""
    *reads, y = operands = tuple(call.operands.values())
    if not are_floats(*operands):
        return None
    axis = int(call.number("axis")) % y.ndim
    length = y.shape[axis]
    others = [i for i in range(y.ndim) if i != axis]
    starts = [axis_spec(others, spec) for spec in (y, *reads)]
    lines = walk(starts[0].shape, starts)
    if lines is None or lines["count"] >= MOST_ELEMENTS or length >= MOST_LENGTH:
        return None
    along = [np.int64(steps(spec)[axis]) for spec in (y, *reads)]
    kind, shape = _rows(length, y.dtype.itemsize)
    if not _are_rows(along, axis, y.ndim):
        kind, shape = "columns", _columns(length)
    arguments = lines, np.int32(length), *(along if kind == "columns" else ()), *operands
    kernel, grid = f"{call.kernel}_{kind}", blocks(int(lines["count"]), shape.lines)
    return Routine().launch("softmax.cu", kernel, *arguments, types={"T": y.dtype}, grid=grid, block=shape.block)


def _are_rows(along: list[np.int64], axis: int, ndim: int) -> bool:
    """Whether the elements of a line lie one behind the other in all operands.

    The outermost axis is none of rows, so that results do not hang on how far apart its elements lie.
    """
    return all(step == 1 for step in along) and (axis > 0 or ndim == 1)


def _rows(length: int, itemsize: int) -> tuple[str, Shape]:
    """A part of a warp for a row if it can keep it in registers, at most 32 numbers a lane; else a block."""
    vector = VECTOR_BYTES // itemsize
    if length <= min(1024, 4096 // itemsize):
        lanes = min(WARP, power_of_two(-(-length // vector)))
        return "short_rows", Shape((lanes, THREADS // lanes), THREADS // lanes)
    return "long_rows", Shape((threads_of_row(length), 1), 1)


def threads_of_row(length: int) -> int:
    """Threads of a block that has a row for itself."""
    return THREADS if length <= LONG else MOST_THREADS


def _columns(length: int) -> Shape:
    """Several threads share a long column."""
    shares = min(MOST_SHARES, power_of_two(-(-length // SHARE)))
    return Shape((THREADS // shares, shares), THREADS // shares)


KERNELS: dict[str, CallBuilder[Routine]] = dict.fromkeys(("softmax", "softmax_derivative"), _along_lines)
