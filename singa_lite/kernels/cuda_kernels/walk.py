"""Walk: how a kernel that goes element by element finds the elements of several operands, as `map.cuh` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.strides import memory_order, ordered_strides
from singa_lite.kernels.kernel_set import TensorSpec

#: A struct of C++, as an array without axes of a structured dtype.
Struct = Array

#: Most axes after merging, as in map.cuh.
AXES = 6
#: Indices of elements are 32 bits wide, other than where all operands lie in one row.
MOST_ELEMENTS = 1 << 32
VECTOR_BYTES = 16

FLAT, ROWS, ANY = range(3)


class Merged(NamedTuple):
    """Axes from the outermost to the innermost, those that lie one behind the other in all operands as one.

    strides: of each operand, in elements.
    """

    extents: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def merged(shape: Sequence[int], operands: Sequence[TensorSpec]) -> Merged:
    """The fewest axes that show all operands, which broadcast to `shape`; in the first operand's order of memory."""
    steps = [_broadcast_steps(spec, shape) for spec in operands]
    axes = [axis for axis in memory_order(shape, steps[0]) if shape[axis] != 1]
    extents: list[int] = []
    strides: list[list[int]] = [[] for _ in operands]
    for axis in axes:
        extent, own = shape[axis], [step[axis] for step in steps]
        if extents and all(made[-1] == extent * step for made, step in zip(strides, own, strict=True)):
            extents[-1] *= extent
            for made, step in zip(strides, own, strict=True):
                made[-1] = step
        else:
            extents.append(extent)
            for made, step in zip(strides, own, strict=True):
                made.append(step)
    if not extents:
        return Merged((1,), tuple((1,) for _ in operands))
    return Merged(tuple(extents), tuple(map(tuple, strides)))


def walk(shape: Sequence[int], operands: Sequence[TensorSpec], vector: int | None = None) -> Struct | None:
    """The struct `Walk<N>` of map.cuh for N operands; None where it has too many axes or elements.

    operands: the first, which is to be the output, decides the order; they broadcast to `shape`. vector:
    elements that a thread takes at a time (VECTOR in map.cuh), by default those of the first operand in 16 bytes.
    """
    vector = vector or VECTOR_BYTES // operands[0].dtype.itemsize
    found = merged(shape, operands)
    count = prod(found.extents)
    mode = _mode(found, vector)
    if len(found.extents) > AXES or (count >= MOST_ELEMENTS and mode != FLAT):
        return None
    struct = np.zeros((), walk_dtype(len(operands)))
    struct["count"], struct["mode"], struct["axes"] = count, mode, len(found.extents)
    struct["extents"][: len(found.extents)] = [min(extent, MOST_ELEMENTS - 1) for extent in found.extents]
    for index, strides in enumerate(found.strides):
        struct["strides"][index, : len(strides)] = strides
    return struct


def dense(shape: Sequence[int], dtype: DType) -> TensorSpec:
    """Returns the spec of a tensor in C order."""
    return TensorSpec(tuple(shape), dtype, ordered_strides(shape, range(len(shape)), dtype.itemsize))


def axis_spec(axes: Sequence[int], spec: TensorSpec) -> TensorSpec:
    """The spec of a tensor's elements along these axes, in this order, at index 0 of all others."""
    return TensorSpec(tuple(spec.shape[axis] for axis in axes), spec.dtype, tuple(spec.strides[axis] for axis in axes))


def spread(spec: TensorSpec, axes: Sequence[int], shape: Sequence[int]) -> TensorSpec:
    """The spec broadcast to a shape. axes: the shape's axes that it has."""
    strides = [0] * len(shape)
    for axis, stride in zip(axes, spec.strides, strict=True):
        strides[axis] = stride
    return TensorSpec(tuple(shape), spec.dtype, tuple(strides))


def steps(spec: TensorSpec) -> tuple[int, ...]:
    """Returns the strides in elements."""
    return tuple(stride // spec.dtype.itemsize for stride in spec.strides)


def step(vector: TensorSpec) -> np.int64:
    """Returns how many elements apart the numbers of a vector lie, as kernels take it."""
    return np.int64(steps(vector)[0])


def power_of_two(least: int) -> int:
    """Returns the first power of two that is as large."""
    return 1 << (least - 1).bit_length()


def _broadcast_steps(spec: TensorSpec, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements, 0 along axes that broadcast to `shape`."""
    missing = len(shape) - spec.ndim
    own = [0 if extent == 1 else stride for extent, stride in zip(spec.shape, steps(spec), strict=True)]
    return (*(0,) * missing, *own)


def _mode(found: Merged, vector: int) -> int:
    """FLAT: one axis; ROWS: whole packs along the innermost axis; else ANY. Steps of 1 or 0 within packs."""
    inner = [strides[-1] for strides in found.strides]
    if any(step not in (0, 1) for step in inner) or inner[0] != 1:
        return ANY
    if len(found.extents) == 1:
        return FLAT
    outer = [step for strides in found.strides for step in strides[:-1] if strides[-1] == 1]
    whole = found.extents[-1] % vector == 0 and all(step % vector == 0 for step in outer)
    return ROWS if whole else ANY


def walk_dtype(operands: int) -> DType:
    """Of the struct `Walk<N>` for that many operands."""
    fields: list[object] = [("count", "i8"), ("mode", "u4"), ("axes", "u4"), ("extents", "u4", AXES)]
    return np.dtype([*fields, ("strides", "i8", (operands, AXES))])
