"""What losses and metrics share: class targets, and means over the positions of each sample."""

from __future__ import annotations

from math import prod

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.ids import check_ids
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Shaped

#: Half a block at a time where class ids pick elements, for NumPy allocates what is picked.
LIMIT = BLOCK // 2


def column(a: Array, ndim: int) -> Array:
    """(n,) as (n, 1, ...) of `ndim` axes, to go with tensors (n, ...)."""
    return a.reshape(a.shape + (1,) * (ndim - 1))


def sample_buffers(x: Shaped) -> list[BufferSpec]:
    """Two float64 numbers a sample: its sum so far and the sum of one piece."""
    return [((x.shape[0],), np.float64)] * 2


def add_to_samples(values: Array, totals: Array, sums: Array) -> None:
    """totals += the sums of values over all axes but the first; totals, sums: (n, 1, ...)."""
    np.add.reduce(values, axis=tuple(range(1, values.ndim)), dtype=np.float64, keepdims=True, out=sums)
    np.add(totals, sums, out=totals)


def is_rows(x: Shaped, target: Shaped) -> bool:
    """Whether the target holds rows of x's shape, not class ids."""
    return bool(target.ndim == x.ndim)


def labels_of(x: Array, target: Array) -> Array:
    """The target with x's rank: rows as they are, ids (n, 1, ...). IndexError where an id names no class."""
    if is_rows(x, target):
        return target
    check_ids("class ids", target, x.shape[1])
    return np.expand_dims(target, 1)


def positions(x: Shaped) -> int:
    """Positions of a sample of class scores (n, c, ...)."""
    return max(int(prod(x.shape[2:])), 1)


def elements(x: Shaped) -> int:
    """Elements of a sample."""
    return max(int(prod(x.shape[1:])), 1)
