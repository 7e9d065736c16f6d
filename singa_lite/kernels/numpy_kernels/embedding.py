"""Rows of a table by their ids, and the gradients of those rows: one row after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from singa_lite.array_types import Array
from singa_lite.kernels.interface.update import SgdHyper
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import pieces
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, bytes_for, carve, scratch


def check_ids(ids: Array, rows: int) -> None:
    """IndexError where an id names no row."""
    if ids.size:
        low, high = np.minimum.reduce(ids, axis=None), np.maximum.reduce(ids, axis=None)
        if low < 0 or high >= rows:
            raise IndexError(f"ids must be in 0..{rows - 1}, received {low}..{high}")


def _index_buffer(ids: Shaped) -> BufferSpec:
    return (min(max(ids.size, 1), BLOCK),), np.intp


@scratch(lambda ids, weight, y: bytes_for(_index_buffer(ids)))
def embedding(ids: Array, weight: Array, y: Array, *, scratch: Bytes) -> None:
    """y = weight[ids], some ids at a time."""
    check_ids(ids, weight.shape[0])
    (buffer,) = carve(scratch, _index_buffer(ids))
    for some, target in pieces(ids[..., None], y, whole=(ids.ndim,)):
        index = shaped(buffer, some.shape[:-1])
        np.copyto(index, some[..., 0], casting="unsafe")
        np.take(weight, index, axis=0, out=target, mode="clip")  # where ids are checked, "raise" would copy


@scratch(lambda ids, dy, dweight, **_: bytes_for(*_row_buffers(ids)))
def embedding_gradient(ids: Array, dy: Array, dweight: Array, *, first: int, padding: int, scratch: Bytes) -> None:
    """dweight[i] = sum of dy where ids is first + i."""
    dweight.fill(0)
    buffers = carve(scratch, *_row_buffers(ids))
    for row, derivative in _rows(ids, dy, first, first + dweight.shape[0], padding, buffers):
        target = dweight[row - first]
        np.add(target, derivative, out=target)


def _row_buffers(ids: Shaped) -> list[BufferSpec]:
    """Ids of a line, and which of them count."""
    line = ids.shape[-1] if ids.ndim else 1
    return [((line,), np.int64), ((line,), np.bool_), ((line,), np.bool_)]


def _rows(
    ids: Array, dy: Array, first: int, stop: int, padding: int, buffers: list[Array]
) -> Iterator[tuple[int, Array]]:
    """(row of the table, derivative by it) for each id from first to below stop, in their order."""
    own, counts, other = buffers
    for lead in np.ndindex(ids.shape[:-1]):
        np.copyto(own, ids[lead], casting="unsafe")
        np.greater_equal(own, first, out=counts)
        np.less(own, stop, out=other)
        np.logical_and(counts, other, out=counts)
        np.not_equal(own, padding, out=other)
        np.logical_and(counts, other, out=counts)
        derivatives = dy[lead] if ids.ndim else dy[None]
        for at in np.flatnonzero(counts).tolist():
            yield int(own[at]), derivatives[at]


def _sum_buffers(ids: Shaped, value: Shaped) -> list[BufferSpec]:
    """All ids, and the sum of a row's derivatives."""
    return [((max(ids.size, 1),), np.int64), ((value.shape[-1],), value.dtype)]


@scratch(lambda ids, dy, rate, value, count, **_: bytes_for(*_sum_buffers(ids, value)))
def sgd_rows(
    ids: Array, dy: Array, rate: Array, value: Array, count: Array, *, hyper: SgdHyper, padding: int, scratch: Bytes
) -> None:
    """value[i] -= lr * sum of dy where ids is i, row by row of those that occur."""
    np.add(count, 1, out=count)
    check_ids(ids, value.shape[0])
    buffer, total = carve(scratch, *_sum_buffers(ids, value))
    flat = shaped(buffer, ids.shape)
    np.copyto(flat, ids, casting="unsafe")
    derivative, step = _by_place(dy), -float(rate) * hyper.lr_mult
    for row, places in _places(flat.reshape(-1)).items():
        if row != padding:
            total.fill(0)
            for place in places:
                np.add(total, derivative(place), out=total)
            np.multiply(total, step, out=total)
            np.add(value[row], total, out=value[row])


def _by_place(dy: Array) -> Callable[[int], Array]:
    """The derivative at a place, counted in C order; of views too."""
    if dy.flags.c_contiguous:
        return dy.reshape(-1, dy.shape[-1]).__getitem__
    return lambda place: dy[np.unravel_index(place, dy.shape[:-1])]


def _places(ids: Array) -> dict[int, list[int]]:
    """{row: where it occurs, in rising order} of each row that does."""
    found: dict[int, list[int]] = {}
    for place, row in enumerate(ids.tolist()):
        found.setdefault(row, []).append(place)
    return found
