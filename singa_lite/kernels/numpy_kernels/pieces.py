"""Pieces of tensors for kernels that need whole lines along an axis, and the temporaries of one piece."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import boxes, narrow
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Shaped


def pieces(*arrays: Array, whole: tuple[int, ...] = (), limit: int = BLOCK) -> Iterator[tuple[Array, ...]]:
    """Views of the same piece of all arrays, at most `limit` elements of the first, axes in `whole` uncut.

    The arrays have one rank; along the other axes they broadcast to the first, so that an extent of 1 goes with
    each piece. A piece passes the limit only where a single line does. An empty first array has no pieces.
    """
    first = arrays[0]
    if first.size == 0:
        return
    shape = tuple(1 if axis in whole else extent for axis, extent in enumerate(first.shape))
    for box in boxes(shape, max(limit * prod(shape) // first.size, 1)):
        cut = tuple(slice(None) if axis in whole else span for axis, span in enumerate(box))
        yield tuple(narrow(a, cut) for a in arrays)


def axis_buffer(x: Shaped, axis: int, limit: int = BLOCK) -> BufferSpec:
    """One number of x's dtype (float32 at least) for each line along `axis` in one of x's `pieces`."""
    lines = min(x.size, limit) // max(x.shape[axis], 1)
    return (max(lines, 1),), np.result_type(x.dtype, np.float32)


def line_buffer(x: Shaped, axis: int, limit: int = BLOCK) -> BufferSpec:
    """The lines themselves: a piece has whole ones, so a single long one may pass the limit."""
    return (min(x.size, max(limit, x.shape[axis])),), np.result_type(x.dtype, np.float32)


def axis_shape(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape with 1 at `axis`."""
    return tuple(1 if i == axis else extent for i, extent in enumerate(shape))
