"""Cutting the index space of large tensors into boxes that stay in the cache, with buffers to match."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.scratch import BLOCK

Box = tuple[slice, ...]


def box_extents(shape: tuple[int, ...], limit: int = BLOCK) -> tuple[int, ...]:
    """Extents of the largest box that `boxes` cuts `shape` into; a rule needs them to state its scratch."""
    extents: list[int] = []
    for extent in reversed(shape):
        largest = max(1, min(extent, limit // max(1, prod(extents))))
        # As few boxes as `largest` allows, but of about equal extents: the buffers need no more than that.
        extents.insert(0, -(-extent // max(1, -(-extent // largest))))
    return tuple(extents)


def boxes(shape: tuple[int, ...], limit: int = BLOCK) -> Iterator[Box]:
    """Index tuples of the boxes of `shape` in C order: at most `limit` elements each, at least one."""
    steps = box_extents(shape, limit)
    axes = (
        [slice(start, min(start + step, extent)) for start in range(0, extent, step)] if extent else []
        for extent, step in zip(shape, steps, strict=True)
    )
    yield from product(*axes)


def narrow(array: Array, box: Box) -> Array:
    """The part of `array` that belongs to the box, where axes of extent 1 belong to every box."""
    spans = zip(array.shape, box, strict=True)
    return array[tuple(slice(None) if extent == 1 else span for extent, span in spans)]


def shaped(buffer: Array, shape: tuple[int, ...]) -> Array:
    """The first elements of a flat buffer in the given shape."""
    return buffer[: prod(shape)].reshape(shape)
