"""Arrays in the scratch of a call that is made of other calls, and arrays that only say what these calls look like."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from singa_lite.common.array_types import Array
from singa_lite.kernels.specs import TensorSpec

#: Bytes at whose multiples arrays begin in the scratch.
ALIGNMENT = 64


def aligned(nbytes: int) -> int:
    """Returns so many bytes, rounded up to where the next array may begin."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def unread(spec: TensorSpec) -> Array:
    """Returns an array of this form over a single element, whose elements nobody may read."""
    return as_strided(np.empty(1, spec.dtype), spec.shape, spec.strides)


def carved(scratch: Array | None, start: int, spec: TensorSpec) -> Array:
    """Returns the array of a spec in the scratch, from this byte on; without a scratch one that nobody may read."""
    if scratch is None:
        return unread(spec)
    return np.ndarray(spec.shape, spec.dtype, scratch, start, spec.strides)
