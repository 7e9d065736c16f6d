"""Rows of a table by ids, and gradients of rows; of tensors in C order: others are copied."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.gaps import without_gaps
from singa_lite.kernels.cuda_kernels.routine import THREADS, Routine, Types, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS, TYPES
from singa_lite.kernels.interface.update import SgdHyper
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "embedding.cu"


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
    """A warp for each row."""
    return _gradient("embedding_gradient", ids, dy, dweight, first, padding)


@without_gaps
def embedding_gradient_add(
    ids: TensorSpec, dy: TensorSpec, dweight: TensorSpec, *, first: int, padding: int
) -> Routine | None:
    """A warp for each row, of which most find nothing to do."""
    return _gradient("embedding_gradient_add", ids, dy, dweight, first, padding)


def _gradient(
    kernel: str, ids: TensorSpec, dy: TensorSpec, dweight: TensorSpec, first: int, padding: int
) -> Routine | None:
    types = _types(ids, dy, dweight)
    if types is None:
        return None
    extents = np.int64(ids.size), np.int64(dweight.shape[0]), np.int64(dweight.shape[1])
    values = *extents, np.int64(first), np.int64(padding)
    return Routine().launch(FILE, kernel, ids, dy, dweight, *values, types=types, grid=_warps(dweight))


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
    """A warp for each row, of which most find nothing to do."""
    types = _types(ids, dy, value)
    if types is None:
        return None
    values = np.int64(ids.size), np.int64(value.shape[0]), np.int64(value.shape[1])
    settings = np.float64(hyper.lr_mult), np.int64(padding)
    routine = Routine().launch(FILE, "count_up", count, types=types, grid=1, block=1)
    return routine.launch(FILE, "sgd_rows", ids, dy, rate, value, *values, *settings, types=types, grid=_warps(value))


def _warps(table: TensorSpec) -> int:
    return blocks(table.shape[0], THREADS // 32)


def _types(ids: TensorSpec, *floats: TensorSpec) -> Types | None:
    """Of the call; None for what it does not do."""
    known = ids.dtype.kind in "iu" and ids.dtype.name in TYPES and floats[0].dtype.name in FLOATS
    alike = all(spec.dtype == floats[0].dtype for spec in floats)
    return {"T": floats[0].dtype, "S": ids.dtype} if known and alike else None
