"""Local response normalization: a thread for each element, which goes over the channels beside it."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.plane import MOST_INDICES, plane
from singa_lite.kernels.cuda_kernels.routine import Routine, Value, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.kernel_set import Form

CHANNELS = (1,)


def lrn(x: Form, y: Form, scale: Form, *, size: int, alpha: float, beta: float, k: float) -> Routine | None:
    """y and scale."""
    return _windows("lrn", (x, y, scale), size, alpha / size, beta, np.float64(k))


def lrn_derivative(dy: Form, x: Form, scale: Form, dx: Form, *, size: int, alpha: float, beta: float) -> Routine | None:
    """dx."""
    return _windows("lrn_derivative", (dy, x, scale, dx), size, 2 * alpha * beta / size, beta)


def _windows(
    kernel: str, forms: tuple[Form, ...], size: int, factor: float, beta: float, *values: Value
) -> Routine | None:
    first = forms[0]
    found = plane(CHANNELS, forms)
    alike = all(form.dtype == first.dtype for form in forms)
    if found is None or not alike or first.dtype.name not in FLOATS or first.size >= MOST_INDICES:
        return None
    settings = np.int32(size // 2), np.float64(factor), np.float64(beta), *values
    return Routine().launch(
        "lrn.cu", kernel, found.struct, *forms, *settings, types={"T": first.dtype}, grid=blocks(first.size)
    )
