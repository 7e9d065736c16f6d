"""Random numbers by NumPy's Philox, in C order of the elements whatever their strides.

`normal` and `truncated_normal` draw other numbers than NumPy does from the same key: how many words NumPy's ziggurat
takes for a number depends on the words, so its numbers come one after the other. Here each element takes words by its
own index: two uniform numbers make two normal ones (Box and Muller, 1958), one makes a truncated one by the inverse of
the cumulative distribution.
"""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.routine import THREADS, Routine, Value, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS, computed
from singa_lite.kernels.cuda_kernels.walk import Struct, dense, step, walk
from singa_lite.kernels.kernel_set import TensorSpec

#: Bytes of a block of words, of which come as many bytes of numbers.
BLOCK_BYTES = 32


def _draw_key(call: Call) -> Routine | None:
    """One thread."""
    return drawn(call["state"], call["key"], "random.cu", "draw_key")


def drawn(state: TensorSpec, key: TensorSpec, file: str, kernel: str, *numbers: Value) -> Routine:
    """A key from a state, by one thread; uint64 (3,) each."""
    operands, types = (state, step(state), key, step(key), *numbers), {"T": np.float32}
    return Routine().launch(file, kernel, *operands, types=types, grid=1, block=1)


def _dropout(call: Call) -> Routine | None:
    """Numbers of float32 for all dtypes."""
    x, key, y = call.all("x", "key", "y")
    found = _walk(y, x)
    if found is None or x.dtype != y.dtype:
        return None
    operands = found, x, key, step(key), y, np.float64(call.number("p"))
    grid = _grid(y, np.dtype(np.float32))
    return Routine().launch("random.cu", "dropout", *operands, types={"T": y.dtype}, grid=grid)


def _uniform(call: Call) -> Routine | None:
    """Numbers of float64 for float64, else of float32."""
    key, y, low, high = call["key"], call["y"], call.number("low"), call.number("high")
    found = _walk(y)
    if found is None:
        return None
    largest = np.nextafter(y.dtype.type(high), y.dtype.type(low))
    operands = found, key, step(key), y, np.float64(low), np.float64(high - low), largest
    grid = _grid(y, computed(y.dtype))
    return Routine().launch("random.cu", "uniform", *operands, types={"T": y.dtype}, grid=grid)


def _normal(call: Call) -> Routine | None:
    """Numbers of float64 for float64, else of float32."""
    key, y = call["key"], call["y"]
    found = _walk(y)
    if found is None:
        return None
    operands = found, key, step(key), y, np.float64(call.number("mean")), np.float64(call.number("std"))
    grid = _grid(y, computed(y.dtype))
    return Routine().launch("random.cu", call.kernel, *operands, types={"T": y.dtype}, grid=grid)


def _walk(y: TensorSpec, *reads: TensorSpec) -> Struct | None:
    """The walk of `draw` in philox.cuh, in C order of the indices; None for dtypes and shapes that it cannot do."""
    if y.dtype.name not in FLOATS:
        return None
    return walk(y.shape, (dense(y.shape, y.dtype), y, *reads))


def _grid(y: TensorSpec, numbers: DType) -> int:
    return blocks(y.size * numbers.itemsize, THREADS * BLOCK_BYTES)


KERNELS: dict[str, CallBuilder[Routine]] = {
    "draw_key": _draw_key,
    "dropout": _dropout,
    "uniform": _uniform,
    "normal": _normal,
    "truncated_normal": _normal,
}
