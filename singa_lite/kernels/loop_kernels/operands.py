"""Operands as loops go over them, by the shapes and strides of tensors: rows of a matrix, or boxes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.strides import memory_order, ordered_strides
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.library import AXES
from singa_lite.kernels.loop_kernels.routine import BoxView, Routine, RowsView, UnservedError, want
from singa_lite.kernels.routine import BufferView
from singa_lite.kernels.widening import NARROW

FLOAT = np.dtype(np.float32)
#: {dtype: its number in numbers.h}, and that of random numbers by their place.
TYPES = {"float32": 0, NARROW: 1, "bool": 2}
UNIFORM = 3
#: Bytes of a mask's number at most: a longer one has bytes that mean nothing.
MASK_BYTES = 8
#: Pieces of rows: enough for the cores of a large machine.
MAX_PIECES = 64
#: Elements and rows of a piece at least, as each has sums of its own.
LEAST_PIECE, LEAST_ROWS = 1 << 15, 32


class Matrix(NamedTuple):
    """Operands of one shape as matrices of so many rows and columns."""

    rows: int
    columns: int
    views: tuple[RowsView, ...]


class Boxes(NamedTuple):
    """Operands of one shape, or broadcast to it, as boxes with the same axes."""

    extents: tuple[int, ...]
    views: tuple[BoxView, ...]


def is_narrow(spec: TensorSpec) -> bool:
    """Whether it is bfloat16."""
    return spec.dtype.name == NARROW


def are_stored(*specs: TensorSpec) -> bool:
    """Whether each is float32 or bfloat16."""
    return all(spec.dtype == FLOAT or is_narrow(spec) for spec in specs)


def check_stored(*specs: TensorSpec) -> None:
    """Returns where each is float32 or bfloat16, else UnservedError."""
    want(are_stored(*specs), "float32 or bfloat16")


def id_type(ids: TensorSpec) -> int:
    """The type of ids as ids.h numbers it: bytes of an id, negative if it has a sign."""
    return ids.dtype.itemsize * (-1 if ids.dtype.kind == "i" else 1)


def piece_count(rows: int, columns: int) -> int:
    """Into how many pieces rows are cut, each with sums of its own that are added up one by one: a power of 2."""
    limit = min(MAX_PIECES, rows // LEAST_ROWS, rows * columns // LEAST_PIECE)
    return 1 << max(0, limit.bit_length() - 1)


def check_vectors(*specs: TensorSpec) -> None:
    """Returns where all are float32 in C order without gaps, which are read as vectors, else UnservedError."""
    are_vectors = all(spec.dtype == FLOAT and _pitch(spec, (), range(spec.ndim)) is not None for spec in specs)
    want(are_vectors, "vectors of float32 without gaps")


def check_number(spec: TensorSpec) -> None:
    """Returns where it is one number of float64, which a loop reads or writes as it is, else UnservedError."""
    want(spec.dtype == np.float64 and spec.size == 1, "one number of float64")


def check_key(spec: TensorSpec | None) -> None:
    """Returns where a key of random numbers has no gaps, or is left out, else UnservedError."""
    want(spec is None or spec.strides == (8,), "a key without gaps")


def check_strides(*specs: TensorSpec) -> None:
    """Returns where all strides are whole elements, else UnservedError."""
    are_whole = not any(stride % spec.dtype.itemsize for spec in specs for stride in spec.strides)
    want(are_whole, "strides of whole elements")


def lie_alike(*specs: TensorSpec) -> bool:
    """Whether all have one shape and one order of axes in memory, without gaps: they are lines of elements."""
    order = memory_order(specs[0].shape, specs[0].strides)
    return all(spec.shape == specs[0].shape and _pitch(spec, (), order) is not None for spec in specs)


def as_vector(routine: Routine, spec: TensorSpec) -> BufferView:
    """Returns where its elements lie in C order without gaps: its own place, or a copy in the scratch.

    UnservedError for other types than float32.
    """
    want(spec.dtype == FLOAT, "float32")
    return _rows(routine, spec, (), range(spec.ndim)).view


def as_matrix(
    routine: Routine, specs: Sequence[TensorSpec], columns: Sequence[int], order: Sequence[int] | None = None
) -> Matrix:
    """Returns operands of one shape as rows, whose elements are along the axes `columns` and lie without gaps.

    The other axes are the rows, in this order, or in that in which the first operand that fits has them in memory; rows
    may lie apart. An operand that lies otherwise is copied into the scratch first if it is read, and from there at the
    end if it is written. UnservedError for other types than float32 and bfloat16.
    """
    shape = specs[0].shape
    check_stored(*specs)
    want(all(spec.shape == shape for spec in specs), "operands of one shape")
    orders = [[axis for axis in memory_order(shape, spec.strides) if axis not in columns] for spec in specs]
    fitting = [outer for spec, outer in zip(specs, orders, strict=True) if _pitch(spec, outer, columns) is not None]
    outer = order or (fitting[0] if fitting else orders[0])
    views = tuple(_rows(routine, spec, outer, columns) for spec in specs)
    width = prod(shape[axis] for axis in columns)
    return Matrix(specs[0].size // width, width, views)


def in_order(routine: Routine, spec: TensorSpec) -> RowsView:
    """Returns an operand as rows whose elements are along its last axis, in C order of the other axes.

    One that lies otherwise is copied as by `as_matrix`.
    """
    return _rows(routine, spec, range(spec.ndim - 1), [spec.ndim - 1])


def _rows(routine: Routine, spec: TensorSpec, outer: Sequence[int], columns: Sequence[int]) -> RowsView:
    pitch = _pitch(spec, outer, columns)
    if pitch is not None:
        return RowsView(spec, pitch, is_narrow(spec))
    copied = routine.temporary(spec.shape, spec.dtype)
    strides = ordered_strides(spec.shape, [*outer, *columns], spec.dtype.itemsize)
    lying = TensorSpec(spec.shape, spec.dtype, strides)
    extents, (own, there) = as_boxes([(spec, spec), (lying, copied)])
    role = routine.call.role(spec)
    if role != "Write":
        routine.run("copy", own, there, extents)
    if role != "Read":
        routine.run_last("copy", there, own, extents)
    return RowsView(copied, prod(spec.shape[axis] for axis in columns), is_narrow(spec))


def as_boxes(operands: Sequence[tuple[TensorSpec, BufferView]]) -> Boxes:
    """Returns operands of one shape, of any strides, each with the buffer that it lies in, as boxes.

    Axes lie as the last operand has them, and those that all operands have evenly are one. UnservedError for more than
    `AXES` that are left, and for strides that are no whole elements.
    """
    shape, last = operands[-1][0].shape, operands[-1][0]
    check_strides(*(spec for spec, _ in operands))
    steps = [[stride // spec.dtype.itemsize for stride in spec.strides] for spec, _ in operands]
    axes: list[tuple[int, ...]] = []  # extent and steps of each operand, from the outermost axis on
    for axis in memory_order(shape, last.strides):
        here = (shape[axis], *(each[axis] for each in steps))
        if here[0] == 1:
            continue
        if axes and all(outer == step * here[0] for outer, step in zip(axes[-1][1:], here[1:], strict=True)):
            axes[-1] = (axes[-1][0] * here[0], *here[1:])
        else:
            axes.append(here)
    want(len(axes) <= AXES, f"at most {AXES} axes that lie apart, received {len(axes)}")
    filled = [(1, *[0] * len(operands))] * (AXES - len(axes)) + axes
    extents, *found = zip(*filled, strict=True)
    views = [BoxView(view, each, TYPES[spec.dtype.name]) for each, (spec, view) in zip(found, operands, strict=True)]
    return Boxes(extents, tuple(views))


def as_rows(spec: TensorSpec) -> RowsView:
    """Returns an operand as rows along its last axis, in C order of the others; UnservedError for another."""
    pitch = _pitch(spec, range(spec.ndim - 1), [spec.ndim - 1]) if spec.ndim else None
    if pitch is None:
        raise UnservedError("a loop: wanted rows in C order")
    return RowsView(spec, pitch, is_narrow(spec))


def broadcast(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    """Returns the spec of the same elements under a shape that theirs broadcasts to."""
    kept = [0 if extent == 1 else stride for extent, stride in zip(spec.shape, spec.strides, strict=True)]
    return TensorSpec(shape, spec.dtype, (*[0] * (len(shape) - spec.ndim), *kept))


def broadcast_vector(vector: TensorSpec, shape: tuple[int, ...], axis: int) -> TensorSpec:
    """Returns the spec of a vector's elements under a shape, the same all along the other axes than this one."""
    strides = [0] * len(shape)
    strides[axis] = vector.strides[0]
    return TensorSpec(shape, vector.dtype, tuple(strides))


def _pitch(spec: TensorSpec, outer: Sequence[int], inner: Sequence[int]) -> int | None:
    """Elements from one row to the next; None where the elements of a row have gaps, or rows do not lie evenly."""
    width = spec.dtype.itemsize
    for axis in reversed(inner):
        if spec.shape[axis] != 1 and spec.strides[axis] != width:
            return None
        width *= spec.shape[axis]
    pitch, rows = 0, 1
    for axis in reversed(outer):
        if spec.shape[axis] == 1:
            continue
        pitch = pitch or spec.strides[axis]
        if spec.strides[axis] != pitch * rows:
            return None
        rows *= spec.shape[axis]
    pitch = pitch or width
    return pitch // spec.dtype.itemsize if pitch >= width and pitch % spec.dtype.itemsize == 0 else None
