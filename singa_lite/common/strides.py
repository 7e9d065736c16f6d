"""Strides: how far apart the elements of a tensor lie along each axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

Extents = tuple[int, ...]


def ordered_strides(shape: Sequence[int], axes: Sequence[int], step: int = 1) -> Extents:
    """Strides of a tensor without gaps whose axes lie in this order, outermost first. step: of the innermost one."""
    strides = [0] * len(shape)
    for axis in reversed(axes):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> Extents:
    """The axes from the outermost to the innermost, for `ordered_strides`.

    C order where strides do not decide: an axis of extent 1 stays behind the axis before it, and an axis that is
    broadcast (stride 0) keeps its index too.
    """
    decisive = [axis for axis, extent in enumerate(shape) if extent != 1 and strides[axis] > 0]
    falling = iter(sorted(decisive, key=lambda axis: -strides[axis]))
    if [*decisive] == sorted(decisive, key=lambda axis: -strides[axis]):
        return tuple(range(len(shape)))
    moved = set(decisive)
    return tuple(next(falling) if axis in moved else axis for axis in range(len(shape)))


def laid_out(shape: Sequence[int], axes: Sequence[int], step: int = 1) -> Extents:
    """`ordered_strides`, the same ones for all orders that differ in axes of extent 1 only."""
    strides = ordered_strides(shape, axes, step)
    return ordered_strides(shape, memory_order(shape, strides), step)


def without_gaps(shape: Sequence[int], strides: Sequence[int], step: int) -> Extents:
    """Strides of a tensor without gaps whose axes lie in the same order. step: of the innermost axis."""
    return laid_out(shape, memory_order(shape, strides), step)


def span(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> range:
    """The range of bytes that the elements lie in, counted from the first byte of the first element."""
    if 0 in shape:
        return range(0)
    low, high = 0, itemsize
    for extent, stride in zip(shape, strides, strict=True):
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return range(low, high)


def reshaped_strides(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> Extents | None:
    """Strides that show the same elements, in C order of their indices, under another shape; None if none do.

    The extents of both shapes are matched in groups of equal products; within one, the old axes must lie evenly one
    behind the other.
    """
    if prod(shape) != prod(wanted) or 0 in shape:
        return None
    old = [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if extent != 1]
    result: list[int] = []
    group: list[int] = []
    elements, axis = 1, 0
    for extent in wanted:
        group.append(extent)
        elements *= extent
        taken = 1
        start = axis
        while axis < len(old) and taken < elements:
            taken *= old[axis][0]
            axis += 1
        if taken > elements:
            axis = start
            continue
        if taken < elements or not _has_even_strides(old[start:axis]):
            return None
        step = old[axis - 1][1] if axis > start else 0
        result += ordered_strides(group, range(len(group)), step)
        group, elements = [], 1
    return tuple(result) if not group else None


def _has_even_strides(axes: Sequence[tuple[int, int]]) -> bool:
    return all(outer[1] == inner[0] * inner[1] for outer, inner in pairwise(axes))
