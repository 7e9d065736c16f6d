"""Rotary positions, of tensors in C order: others are copied."""

from __future__ import annotations

from math import prod

import numpy as np

from singa_lite.kernels.cuda_kernels.libraries.gaps import without_gaps
from singa_lite.kernels.cuda_kernels.routine import Routine, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "position.cu"


@without_gaps
def rotary(x: TensorSpec, table: TensorSpec, y: TensorSpec, *, axis: int, inverse: bool) -> Routine | None:
    """A thread for each pair."""
    known = x.dtype.name in FLOATS and all(spec.dtype == x.dtype for spec in (table, y))
    if not known:
        return None
    axis %= x.ndim
    pairs, half = x.size // 2, x.shape[-1] // 2
    extents = pairs, x.shape[axis], prod(x.shape[axis + 1 : -1]), half
    values = *map(np.int64, extents), np.float64(-1 if inverse else 1)
    return Routine().launch(FILE, "rotary", x, table, y, *values, types={"T": x.dtype}, grid=blocks(pairs))
