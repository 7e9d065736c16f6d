"""Rows of a table by their ids, and the gradients of those rows: one row after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.ids import check_ids
from singa_lite.kernels.interface.update import SgdHyper
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import pieces
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, bytes_for, carve, scratch


def _index_buffer(ids: Shaped) -> BufferSpec:
    return (min(max(ids.size, 1), BLOCK),), np.intp


@scratch(lambda ids, weight, y: bytes_for(_index_buffer(ids)))
def embedding(ids: Array, weight: Array, y: Array, *, scratch: Bytes) -> None:
    """y = weight[ids], some ids at a time."""
    check_ids("ids", ids, weight.shape[0])
    (buffer,) = carve(scratch, _index_buffer(ids))
    for some, target in pieces(ids[..., None], y, whole=(ids.ndim,)):
        index = shaped(buffer, some.shape[:-1])
        np.copyto(index, some[..., 0], casting="unsafe")
        np.take(weight, index, axis=0, out=target, mode="clip")  # where ids are checked, "raise" would copy


#: Rows that are gathered at a time, in the scratch; and bytes of those that are then picked from a table or put there,
#: which NumPy allocates.
_GROUP, _PICKED = 64, 1 << 17


def _sum_buffers(ids: Shaped, dy: Shaped) -> list[BufferSpec]:
    """All ids; rows of a group; the sum of a row, and of a further group of its own."""
    features = dy.shape[-1]
    return [((max(ids.size, 1),), np.int64), ((_GROUP, features), dy.dtype), ((2, features), dy.dtype)]


@scratch(lambda ids, dy, dweight, **_: bytes_for(*_sum_buffers(ids, dy)))
def embedding_gradient(ids: Array, dy: Array, dweight: Array, *, first: int, padding: int, scratch: Bytes) -> None:
    """dweight[i] = sum of dy where ids is first + i."""
    dweight.fill(0)
    for rows, sums in _sums(ids, dy, first, first + dweight.shape[0], padding, scratch):
        dweight[rows - first] = sums


@scratch(lambda ids, dy, dweight, **_: bytes_for(*_sum_buffers(ids, dy)))
def embedding_gradient_add(ids: Array, dy: Array, dweight: Array, *, first: int, padding: int, scratch: Bytes) -> None:
    """dweight[i] += sum of dy where ids is first + i."""
    for rows, sums in _sums(ids, dy, first, first + dweight.shape[0], padding, scratch):
        dweight[rows - first] += sums


@scratch(lambda ids, dy, rate, value, count, **_: bytes_for(*_sum_buffers(ids, dy)))
def sgd_rows(
    ids: Array, dy: Array, rate: Array, value: Array, count: Array, *, hyper: SgdHyper, padding: int, scratch: Bytes
) -> None:
    """value[i] -= lr * sum of dy where ids is i, of the rows that occur."""
    np.add(count, 1, out=count)
    check_ids("ids", ids, value.shape[0])
    step = -float(rate) * hyper.lr_mult
    for rows, sums in _sums(ids, dy, 0, value.shape[0], padding, scratch):
        value[rows] += np.multiply(sums, step, out=sums)


def _sums(ids: Array, dy: Array, first: int, stop: int, padding: int, scratch: Bytes) -> Iterator[tuple[Array, Array]]:
    """Rows from first to below stop that occur, but the padding, and the sums of their derivatives: a few at a time.

    First those that occur once, which need no sum, then each of the others.
    """
    flat, group, (total, temporary) = carve(scratch, *_sum_buffers(ids, dy))
    flat = flat[: ids.size]
    np.copyto(flat.reshape(ids.shape), ids, casting="unsafe")
    rows, places, borders = _by_row(flat, first, stop, padding)
    gather, counts = _gatherer(dy, group), np.diff(borders)
    once = borders[:-1][counts == 1]
    step = max(1, min(_GROUP, _PICKED // max(1, dy.shape[-1] * dy.dtype.itemsize)))
    for start in range(0, len(once), step):
        some = once[start : start + step]
        yield rows[some], gather(places[some])
    for start, count in zip(borders[:-1][counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
        _add_up(gather, places[start : start + count], total, temporary)
        yield rows[start : start + 1], total[None]


def _by_row(ids: Array, first: int, stop: int, padding: int) -> tuple[Array, Array, Array]:
    """Rows from first to below stop, but the padding, in rising order; where each stands; where a row's next begins."""
    places = np.flatnonzero((ids >= first) & (ids < stop) & (ids != padding))
    places = places[np.argsort(ids[places], kind="stable")]
    rows = ids[places]
    changes = np.flatnonzero(rows[1:] != rows[:-1]) + 1
    return rows, places, np.concatenate(([0], changes, [len(rows)])) if len(rows) else np.zeros(1, np.intp)


#: The rows at some places, at most _GROUP of them.
Gather = Callable[[Array], Array]


def _gatherer(dy: Array, group: Array) -> Gather:
    """Gathers rows of dy, of a view of it too, into the group."""
    if dy.flags.c_contiguous:
        rows = dy.reshape(-1, dy.shape[-1])
        return lambda places: np.take(rows, places, axis=0, out=group[: len(places)], mode="clip")

    def gather(places: Array) -> Array:
        np.copyto(group[: len(places)], dy[np.unravel_index(places, dy.shape[:-1])])
        return group[: len(places)]

    return gather


def _add_up(gather: Gather, places: Array, total: Array, temporary: Array) -> None:
    """total = the sum of the rows at these places, group by group."""
    np.add.reduce(gather(places[:_GROUP]), axis=0, out=total)
    for start in range(_GROUP, len(places), _GROUP):
        np.add.reduce(gather(places[start : start + _GROUP]), axis=0, out=temporary)
        np.add(total, temporary, out=total)
