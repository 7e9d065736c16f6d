"""Rows of a table by ids, and gradients of rows; of tensors in C order: others are copied."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.libraries.gaps import without_gaps
from singa_lite.kernels.cuda_kernels.routine import THREADS, Routine, Types, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS, TYPES
from singa_lite.kernels.interface.update import SgdHyper
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Temporary

FILE = "embedding.cu"
#: TILE and LANES * COLUMNS of the source.
_TILE, _FEATURES_OF_A_WARP = 256, 128


@without_gaps
def embedding(ids: TensorSpec, weight: TensorSpec, y: TensorSpec) -> Routine | None:
    """A thread for each element."""
    types = _types(ids, weight, y)
    if types is None:
        return None
    extents = np.int64(ids.size), np.int64(weight.shape[0]), np.int64(weight.shape[1])
    return Routine().launch(FILE, "embedding", ids, weight, y, *extents, types=types, grid=blocks(y.size))


@without_gaps
def embedding_gradient(
    ids: TensorSpec, dy: TensorSpec, dweight: TensorSpec, *, first: int, padding: int
) -> Routine | None:
    """The ids sorted, then a warp for each row and some of its features."""
    return _gradient("embedding_gradient", ids, dy, dweight, first, padding)


@without_gaps
def embedding_gradient_add(
    ids: TensorSpec, dy: TensorSpec, dweight: TensorSpec, *, first: int, padding: int
) -> Routine | None:
    """The same; rows that do not occur are left as they are."""
    return _gradient("embedding_gradient_add", ids, dy, dweight, first, padding)


def _gradient(
    kernel: str, ids: TensorSpec, dy: TensorSpec, dweight: TensorSpec, first: int, padding: int
) -> Routine | None:
    types = _types(ids, dy, dweight)
    if types is None or not _fit_keys(ids, dweight):
        return None
    rows, features = dweight.shape
    routine = Routine()
    keys, starts = _sorted_by_row(routine, ids, rows, first, padding, types)
    extents = np.int64(rows), np.int64(features)
    return routine.launch(FILE, kernel, keys, starts, dy, dweight, *extents, types=types, grid=_warps(rows, features))


@without_gaps
def sgd_rows(
    ids: TensorSpec,
    dy: TensorSpec,
    rate: TensorSpec,
    value: TensorSpec,
    count: TensorSpec,
    *,
    hyper: SgdHyper,
    padding: int,
) -> Routine | None:
    """The ids sorted, then a warp for each row that occurs and some of its features."""
    types = _types(ids, dy, value)
    if types is None or not _fit_keys(ids, value):
        return None
    rows, features = value.shape
    routine = Routine().launch(FILE, "count_up", count, types=types, grid=1, block=1)
    keys, starts = _sorted_by_row(routine, ids, rows, 0, padding, types)
    settings = np.int64(rows), np.int64(features), np.float64(hyper.lr_mult)
    grid = _warps(rows, features)
    return routine.launch(FILE, "sgd_rows", keys, starts, dy, rate, value, *settings, types=types, grid=grid)


def _sorted_by_row(
    routine: Routine, ids: TensorSpec, rows: int, first: int, padding: int, types: Types
) -> tuple[Temporary, Temporary]:
    """(keys in rising order, index of the first key of each row), in scratch: see `embedding.cu`.

    A merge doubles the length of the sorted runs, so there are log2(ids / _TILE) of them.
    """
    places = np.int64(ids.size)
    keys, spare = (routine.temporary((max(ids.size, 1),), np.uint64) for _ in range(2))
    starts = routine.temporary((rows + 1,), np.int64)
    extents = places, np.int64(rows), np.int64(first), np.int64(padding)
    routine.launch(FILE, "sort_tiles", ids, keys, *extents, types=types, grid=blocks(ids.size))
    width = _TILE
    while width < ids.size:
        routine.launch(FILE, "merge_runs", keys, spare, places, np.int64(width), types=types, grid=blocks(ids.size))
        keys, spare, width = spare, keys, 2 * width
    routine.launch(FILE, "find_rows", keys, starts, places, np.int64(rows), types=types, grid=blocks(rows + 1))
    return keys, starts


def _warps(rows: int, features: int) -> int:
    """Blocks for a warp for each row and each COLUMNS * 32 of its features."""
    return blocks(rows * -(-features // _FEATURES_OF_A_WARP), THREADS // 32)


def _fit_keys(ids: TensorSpec, table: TensorSpec) -> bool:
    """Whether a row and a place have 32 bits each. The last row's number stands for ids that are left out."""
    return ids.size < 2**32 and table.shape[0] < 2**32 - 1


def _types(ids: TensorSpec, *floats: TensorSpec) -> Types | None:
    """Of the call; None for what it does not do."""
    known = ids.dtype.kind in "iu" and ids.dtype.name in TYPES and floats[0].dtype.name in FLOATS
    alike = all(spec.dtype == floats[0].dtype for spec in floats)
    return {"T": floats[0].dtype, "S": ids.dtype} if known and alike else None
