"""Random numbers by NumPy's Philox, in C order of the elements whatever their strides.

`normal` and `truncated_normal` are left to the set below: how many words NumPy's
ziggurat takes for a number depends on the words, so numbers come one after the other.
"""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.cuda_kernels.routine import THREADS, Routine, Value, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.cuda_kernels.walk import Struct, walk
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "random.cu"

#: Bytes of a block of words, of which come as many bytes of numbers.
BLOCK_BYTES = 32


def draw_key(state: TensorSpec, key: TensorSpec) -> Routine | None:
    """One thread."""
    operands = state, _step(state), key, _step(key)
    return Routine().launch(FILE, "draw_key", *operands, types={"T": np.float32}, grid=1, block=1)


def dropout(x: TensorSpec, key: TensorSpec, y: TensorSpec, *, p: float) -> Routine | None:
    """Numbers of float32 for all dtypes."""
    found = _walk(y, x)
    if found is None or x.dtype != y.dtype:
        return None
    operands = found, x, key, _step(key), y, np.float64(p)
    grid = _grid(y, np.dtype(np.float32))
    return Routine().launch(FILE, "dropout", *operands, types={"T": y.dtype}, grid=grid)


def uniform(key: TensorSpec, y: TensorSpec, *, low: float, high: float) -> Routine | None:
    """Numbers of float64 for float64, else of float32."""
    found = _walk(y)
    if found is None:
        return None
    largest = np.nextafter(y.dtype.type(high), y.dtype.type(low))
    values: tuple[Value, ...] = (np.float64(low), np.float64(high - low), largest)
    grid = _grid(y, np.promote_types(y.dtype, np.float32))
    return Routine().launch(FILE, "uniform", found, key, _step(key), y, *values, types={"T": y.dtype}, grid=grid)


def _step(words: TensorSpec) -> np.int64:
    """How far apart the words of a key lie."""
    return np.int64(words.strides[0] // 8)


def _walk(y: TensorSpec, *reads: TensorSpec) -> Struct | None:
    """The walk of `draw` in philox.cuh, in C order of the indices; None for dtypes and shapes that it cannot do."""
    if y.dtype.name not in FLOATS:
        return None
    counted = TensorSpec(y.shape, y.dtype, ordered_strides(y.shape, range(y.ndim), y.dtype.itemsize))
    return walk(y.shape, (counted, y, *reads))


def _grid(y: TensorSpec, numbers: DType) -> int:
    return blocks(y.size * numbers.itemsize, THREADS * BLOCK_BYTES)
