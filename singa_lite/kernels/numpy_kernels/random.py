"""Random numbers: NumPy's Philox from a key, drawn in C order through a small buffer."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.ordering import select
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, blocks, bytes_for, carve, scratch
from singa_lite.kernels.philox import generator


def draw_key(state: Array, key: Array) -> None:
    """The counter wraps around after 2**64 keys."""
    np.copyto(key, state)
    np.add(state[2:], 1, out=state[2:])


def _dropout_buffers(x: Shaped) -> list[BufferSpec]:
    size = (min(BLOCK, x.size),)
    return [(size, np.float32), (size, np.bool_), (size, x.dtype)]


@scratch(lambda x, key, y, **_: bytes_for(*_dropout_buffers(x)))
def dropout(x: Array, key: Array, y: Array, *, p: float, scratch: Bytes) -> None:
    """A quotient where kept, 0 elsewhere, even where x is NaN or infinite."""
    numbers, flags, kept = carve(scratch, *_dropout_buffers(x))
    draws = generator(key)
    for source, target in blocks(x, y):
        flat = numbers[: source.size]
        draws.random(dtype=np.float32, out=flat)
        keeps = np.greater_equal(flat, p, out=flags[: source.size])
        selected = select(keeps.reshape(source.shape), source, shaped(kept, source.shape))
        np.divide(selected, 1 - p, out=target)


def _draw_dtype(y: Shaped) -> DType:
    """The dtype that numbers for y are drawn in: NumPy draws float32 and float64."""
    return np.dtype(np.float64 if y.dtype == np.float64 else np.float32)


def _number_buffers(y: Shaped) -> list[BufferSpec]:
    return [((min(BLOCK, y.size),), _draw_dtype(y))]


@scratch(lambda key, y, **_: bytes_for(*_number_buffers(y)))
def uniform(key: Array, y: Array, *, low: float, high: float, scratch: Bytes) -> None:
    """Rounding may carry low + (high - low) * number up to high, so numbers end just below it."""
    (numbers,) = carve(scratch, *_number_buffers(y))
    draws = generator(key)
    bound = y.dtype.type if y.dtype.kind == "f" else np.float32
    largest = np.nextafter(bound(high), bound(low))
    for (target,) in blocks(y):
        flat = numbers[: target.size]
        draws.random(dtype=flat.dtype, out=flat)
        _scale(flat, low, high - low, flat)
        np.minimum(shaped(flat, target.shape), largest, out=target, casting="same_kind")


@scratch(lambda key, y, **_: bytes_for(*_number_buffers(y)))
def normal(key: Array, y: Array, *, mean: float, std: float, scratch: Bytes) -> None:
    """mean + std * standard normal numbers (NumPy's ziggurat)."""
    (numbers,) = carve(scratch, *_number_buffers(y))
    draws = generator(key)
    for (target,) in blocks(y):
        flat = numbers[: target.size]
        draws.standard_normal(dtype=flat.dtype, out=flat)
        _scale(shaped(flat, target.shape), mean, std, target)


def _truncated_buffers(y: Shaped) -> list[BufferSpec]:
    size = min(BLOCK, y.size)
    return [*_number_buffers(y), ((size,), _draw_dtype(y)), ((2, size), np.bool_)]


@scratch(lambda key, y, **_: bytes_for(*_truncated_buffers(y)))
def truncated_normal(key: Array, y: Array, *, mean: float, std: float, scratch: Bytes) -> None:
    """The i-th element takes the i-th number within the bounds, whatever the size of the blocks."""
    numbers, kept, flags = carve(scratch, *_truncated_buffers(y))
    draws = generator(key)
    for (target,) in blocks(y):
        filled = 0
        while filled < target.size:
            # Never more than are still wanted: then the last number drawn for a block is the last one kept.
            flat = numbers[: target.size - filled]
            draws.standard_normal(dtype=flat.dtype, out=flat)
            filled += _keep_bounded(flat, kept[filled:], flags[:, : flat.size])
        _scale(shaped(kept, target.shape), mean, std, target)


def _keep_bounded(numbers: Array, kept: Array, flags: Array) -> int:
    """Put the numbers within [-2, 2] at the front of `kept`, in order, and return how many they are."""
    within, below = flags
    np.greater_equal(numbers, -2, out=within)
    np.logical_and(within, np.less_equal(numbers, 2, out=below), out=within)
    count = 0
    # np.compress makes a list of indices: pieces keep it small.
    for piece, chosen in blocks(numbers, within, limit=BLOCK // 8):
        found = int(np.count_nonzero(chosen))
        np.compress(chosen, piece, out=kept[count : count + found])
        count += found
    return count


def _scale(numbers: Array, offset: float, factor: float, out: Array) -> None:
    """out = offset + factor * numbers; overwrites the numbers."""
    np.multiply(numbers, factor, out=numbers)
    np.add(numbers, offset, out=out, casting="same_kind")
