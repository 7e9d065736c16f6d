"""What is beside a loss over rows of scores, of tensors in C order: others are copied."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.elementwise import mapped
from singa_lite.kernels.cuda_kernels.libraries.gaps import without_gaps
from singa_lite.kernels.cuda_kernels.routine import THREADS, Routine, Types, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS, TYPES
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "token_loss.cu"


@without_gaps
def target_weights(target: TensorSpec, ids: TensorSpec, weights: TensorSpec, *, ignored: int) -> Routine | None:
    """One block, as there is a number or two for each position only."""
    types = _types(target, weights)
    if types is None or ids.dtype != target.dtype:
        return None
    values = np.int64(target.size), np.int64(ignored)
    return Routine().launch(FILE, "target_weights", target, ids, weights, *values, types=types, grid=1, block=THREADS)


def weigh(x: TensorSpec, weights: TensorSpec, y: TensorSpec) -> Routine | None:
    """Element by element."""
    return mapped("weigh.cu", "weigh", y, x, weights) if y.dtype.name in FLOATS else None


@without_gaps
def smooth_labels(x: TensorSpec, target: TensorSpec, losses: TensorSpec, *, share: float) -> Routine | None:
    """A warp for each row."""
    return _by_rows("smooth_labels", target, (x, losses), (x, target, losses), x, share)


@without_gaps
def smooth_labels_derivative(
    dlosses: TensorSpec, target: TensorSpec, dx: TensorSpec, *, share: float
) -> Routine | None:
    """A warp for each row."""
    return _by_rows("smooth_labels_derivative", target, (dlosses, dx), (dlosses, target, dx), dx, share)


def _by_rows(
    kernel: str,
    target: TensorSpec,
    floats: tuple[TensorSpec, TensorSpec],
    operands: tuple[TensorSpec, ...],
    scores: TensorSpec,
    share: float,
) -> Routine | None:
    types = _types(target, *floats)
    if types is None or scores.ndim != 2:
        return None
    rows, classes = scores.shape
    values = np.int64(rows), np.int64(classes), np.float64(share)
    return Routine().launch(FILE, kernel, *operands, *values, types=types, grid=blocks(rows, THREADS // 32))


def _types(ids: TensorSpec, *floats: TensorSpec) -> Types | None:
    """Of the call; None for what it does not do."""
    known = ids.dtype.kind in "iu" and ids.dtype.name in TYPES and floats[0].dtype.name in FLOATS
    alike = all(spec.dtype == floats[0].dtype for spec in floats)
    return {"T": floats[0].dtype, "S": ids.dtype} if known and alike else None
