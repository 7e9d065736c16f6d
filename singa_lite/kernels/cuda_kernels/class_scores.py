"""Cross entropy of rows of scores of which only some classes are there, of tensors in C order: others are copied."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.libraries.gaps import without_gaps
from singa_lite.kernels.cuda_kernels.routine import THREADS, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS, TYPES
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "class_scores.cu"


@without_gaps
def log_sum_exp(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """A warp for each row."""
    if x.ndim != 2 or x.dtype.name not in FLOATS or x.dtype != y.dtype:
        return None
    types = {"T": x.dtype, "S": np.dtype(np.int32)}
    return Routine().launch(FILE, "log_sum_exp", x, y, *_extents(x), types=types, grid=_warps(x))


@without_gaps
def softmax_classes_derivative(
    dlosses: TensorSpec,
    x: TensorSpec,
    lse: TensorSpec,
    target: TensorSpec,
    dx: TensorSpec,
    *,
    first: int,
    classes: int,
    share: float,
) -> Routine | None:
    """A warp for each row."""
    alike = x.ndim == 2 and all(spec.dtype == x.dtype for spec in (dlosses, lse, dx))
    if not alike or x.dtype.name not in FLOATS or target.dtype.kind not in "iu" or target.dtype.name not in TYPES:
        return None
    values = *_extents(x), np.int64(first), np.int64(classes), np.float64(share)
    operands, types = (dlosses, x, lse, target, dx), {"T": x.dtype, "S": target.dtype}
    return Routine().launch(FILE, "softmax_classes_derivative", *operands, *values, types=types, grid=_warps(x))


def _extents(x: TensorSpec) -> tuple[np.int64, np.int64]:
    return np.int64(x.shape[0]), np.int64(x.shape[1])


def _warps(x: TensorSpec) -> int:
    return blocks(x.shape[0], THREADS // 32)
