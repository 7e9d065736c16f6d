"""Local response normalization: a thread for each element, which goes over the channels beside it."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.plane import MOST_INDICES, plane
from singa_lite.kernels.cuda_kernels.routine import Routine, Value, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.kernel_set import TensorSpec

CHANNELS = (1,)


def lrn(
    x: TensorSpec, y: TensorSpec, scale: TensorSpec, *, size: int, alpha: float, beta: float, k: float
) -> Routine | None:
    """One step, which writes y and scale."""
    return _windows("lrn", (x, y, scale), size, alpha / size, beta, np.float64(k))


def lrn_derivative(
    dy: TensorSpec, x: TensorSpec, scale: TensorSpec, dx: TensorSpec, *, size: int, alpha: float, beta: float
) -> Routine | None:
    """One step."""
    return _windows("lrn_derivative", (dy, x, scale, dx), size, 2 * alpha * beta / size, beta)


def _windows(
    kernel: str, specs: tuple[TensorSpec, ...], size: int, factor: float, beta: float, *values: Value
) -> Routine | None:
    first = specs[0]
    found = plane(CHANNELS, specs)
    alike = all(spec.dtype == first.dtype for spec in specs)
    if found is None or not alike or first.dtype.name not in FLOATS or first.size >= MOST_INDICES:
        return None
    settings = np.int32(size // 2), np.float64(factor), np.float64(beta), *values
    return Routine().launch(
        "lrn.cu", kernel, found.struct, *specs, *settings, types={"T": first.dtype}, grid=blocks(first.size)
    )
