"""A few rows at a time of tensors (rows..., *features), so that scratch does not grow with the rows."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from types import EllipsisType

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import box_extents, boxes
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Shaped


def piece_buffer(x: Shaped, dtype: DTypeLike) -> BufferSpec:
    """A buffer for a piece of x."""
    return (min(BLOCK, x.size),), dtype


def _row_limit(x: Shaped, numbers: Shaped) -> int:
    """Rows that make about a block."""
    return max(1, BLOCK // max(1, int(x.size) // max(1, int(numbers.size))))


def row_blocks(x: Shaped, numbers: Shaped) -> Iterator[tuple[slice | EllipsisType, ...]]:
    """Indices of a few rows. The ellipsis makes a view even of the only row of a tensor without row axes.

    numbers: of the rows' shape.
    """
    for box in boxes(numbers.shape, _row_limit(x, numbers)):
        yield *box, ...


def row_buffers(x: Shaped, numbers: Shaped, sums: int, vectors: int = 0) -> list[BufferSpec]:
    """So many float64 sums a row of a block, and so many numbers a row in x's dtype."""
    rows = prod(box_extents(numbers.shape, _row_limit(x, numbers)))
    return [((sums, rows), np.float64), ((vectors, rows), x.dtype)]


def per_row(vector: Array, x: Array) -> Array:
    """A view (rows..., 1, ...) of (rows...)."""
    return vector[(..., *(None,) * (x.ndim - vector.ndim))]


def per_feature(parameter: Array, x: Array) -> Array:
    """A view (1, ..., *shape) of (*shape)."""
    return parameter[(*(None,) * (x.ndim - parameter.ndim), ...)]


def per_channel(vector: Array, x: Array) -> Array:
    """A view (1, c, 1, ...) of (c,)."""
    return vector.reshape(1, vector.size, *(1,) * (x.ndim - 2))
