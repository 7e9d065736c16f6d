"""Rows of a table by ids, and gradients of rows; of tensors in C order: others are copied."""

from __future__ import annotations

from typing import cast

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.copies import without_gaps
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine, Types, blocks, integer, warps
from singa_lite.kernels.cuda_kernels.rows import types_of_rows
from singa_lite.kernels.cuda_kernels.source import computed
from singa_lite.kernels.interface.update import SgdHyper
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Temporary

FILE = "embedding.cu"
#: TILE, PIECE and LANES * COLUMNS of the source.
_TILE, _PIECE, _FEATURES_OF_A_WARP = 256, 64, 128


def _embedding(call: Call) -> Routine | None:
    """A thread for each element."""
    ids, weight, y = call.all("ids", "weight", "y")
    types = types_of_rows([weight, y], [ids])
    if types is None:
        return None
    extents = np.int64(ids.size), np.int64(weight.shape[0]), np.int64(weight.shape[1])
    return Routine().launch(FILE, "embedding", ids, weight, y, *extents, types=types, grid=blocks(y.size))


def _gradient(call: Call) -> Routine | None:
    """The ids sorted, then a warp for each row and some of its features; a sum leaves rows that do not occur."""
    ids, dy, dweight = call.all("ids", "dy", "dweight")
    types = types_of_rows([dy, dweight], [ids])
    if types is None or not _fit_keys(ids, dweight):
        return None
    routine = Routine()
    sorted_ids = _sorted_by_row(routine, call, dweight, integer(call, "first"), types)
    extents, grid = map(np.int64, dweight.shape), _warps(*dweight.shape)
    return routine.launch(FILE, call.kernel, *sorted_ids, dy, dweight, *extents, types=types, grid=grid)


def _sgd_rows(call: Call) -> Routine | None:
    """The ids sorted, then a warp for each row that occurs and some of its features."""
    ids, dy, rate, value, count = call.all("ids", "dy", "rate", "value", "count")
    types = types_of_rows([dy, value], [ids])
    if types is None or not _fit_keys(ids, value):
        return None
    routine = Routine().launch(FILE, "count_up", count, types=types, grid=1, block=1)
    sorted_ids = _sorted_by_row(routine, call, value, np.int64(0), types)
    settings = *map(np.int64, value.shape), np.float64(cast(SgdHyper, call.settings["hyper"]).lr_mult)
    arguments: tuple[Argument, ...] = *sorted_ids, dy, rate, value, *settings
    return routine.launch(FILE, "sgd_rows", *arguments, types=types, grid=_warps(*value.shape))


def _sorted_by_row(
    routine: Routine, call: Call, table: TensorSpec, first: np.int64, types: Types
) -> tuple[Temporary, Temporary, Temporary]:
    """(keys in rising order, index of the first key of each row, sums of pieces), in scratch: see `embedding.cu`.

    A merge doubles the length of the sorted runs, so there are log2(ids / _TILE) of them.
    """
    (ids, dy), (rows, features) = call.all("ids", "dy"), table.shape
    places = np.int64(ids.size)
    keys, spare = (routine.temporary((max(ids.size, 1),), np.uint64) for _ in range(2))
    starts = routine.temporary((rows + 1,), np.int64)
    extents = places, np.int64(rows), first, integer(call, "padding")
    routine.launch(FILE, "sort_tiles", ids, keys, *extents, types=types, grid=blocks(ids.size))
    width = _TILE
    while width < ids.size:
        routine.launch(FILE, "merge_runs", keys, spare, places, np.int64(width), types=types, grid=blocks(ids.size))
        keys, spare, width = spare, keys, 2 * width
    routine.launch(FILE, "find_rows", keys, starts, places, np.int64(rows), types=types, grid=blocks(rows + 1))
    count = ids.size // _PIECE
    pieces = routine.temporary((max(count, 1), features), computed(dy.dtype))
    if count:
        counts, grid = (np.int64(count), np.int64(features)), _warps(count, features)
        routine.launch(FILE, "sum_pieces", keys, starts, dy, pieces, *counts, types=types, grid=grid)
    return keys, starts, pieces


def _warps(rows: int, features: int) -> int:
    """Blocks for a warp for each row and each COLUMNS * 32 of its features."""
    return warps(rows * -(-features // _FEATURES_OF_A_WARP))


def _fit_keys(ids: TensorSpec, table: TensorSpec) -> bool:
    """Whether a row and a place have 32 bits each. The last row's number stands for ids that are left out."""
    return ids.size < 2**32 and table.shape[0] < 2**32 - 1


_BUILDERS: dict[str, CallBuilder[Routine]] = {
    "embedding": _embedding,
    "embedding_gradient": _gradient,
    "embedding_gradient_add": _gradient,
    "sgd_rows": _sgd_rows,
}
KERNELS = {name: without_gaps(build) for name, build in _BUILDERS.items()}
