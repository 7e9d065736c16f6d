"""Root mean square normalization, of tensors in C order: others are copied."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.libraries.gaps import without_gaps
from singa_lite.kernels.cuda_kernels.routine import THREADS, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "rms_norm.cu"


@without_gaps
def rms_norm(x: TensorSpec, gamma: TensorSpec, y: TensorSpec, inv_rms: TensorSpec, *, epsilon: float) -> Routine | None:
    """A warp for each row."""
    if not _supports(x, gamma, y, inv_rms):
        return None
    values = *_extents(inv_rms, gamma), np.float64(epsilon)
    return Routine().launch(FILE, "rms_norm", x, gamma, y, inv_rms, *values, types={"T": x.dtype}, grid=_warps(inv_rms))


@without_gaps
def rms_norm_derivative(
    dy: TensorSpec, x: TensorSpec, gamma: TensorSpec, inv_rms: TensorSpec, dx: TensorSpec
) -> Routine | None:
    """A warp for each row."""
    if not _supports(dy, x, gamma, inv_rms, dx):
        return None
    operands = dy, x, gamma, inv_rms, dx
    values = _extents(inv_rms, gamma)
    return Routine().launch(FILE, "rms_norm_derivative", *operands, *values, types={"T": x.dtype}, grid=_warps(inv_rms))


@without_gaps
def rms_norm_gradient(dy: TensorSpec, x: TensorSpec, inv_rms: TensorSpec, dgamma: TensorSpec) -> Routine | None:
    """A block for 32 features, whose threads share the rows."""
    if not _supports(dy, x, inv_rms, dgamma):
        return None
    values, grid = _extents(inv_rms, dgamma), max(1, -(-dgamma.size // 32))
    operands = dy, x, inv_rms, dgamma
    return Routine().launch(
        FILE, "rms_norm_gradient", *operands, *values, types={"T": x.dtype}, grid=grid, block=(32, 8)
    )


def _extents(rows: TensorSpec, features: TensorSpec) -> tuple[np.int64, np.int64]:
    return np.int64(rows.size), np.int64(features.size)


def _warps(rows: TensorSpec) -> int:
    return blocks(rows.size, THREADS // 32)


def _supports(*specs: TensorSpec) -> bool:
    return specs[0].dtype.name in FLOATS and all(spec.dtype == specs[0].dtype for spec in specs)
