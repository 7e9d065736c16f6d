"""What is beside a loss over rows of scores: which rows count, and smoothed labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.samples import labels_of
from singa_lite.kernels.numpy_kernels.scratch import BufferSpec, Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.temporaries import Temporaries

_MASK = Temporaries(masks=1)
#: Rows at a time where class ids pick elements, for NumPy allocates what is picked.
_ROWS = 4096


@scratch(lambda target, ids, weights, **_: bytes_for((target.shape, np.bool_)))
def target_weights(target: Array, ids: Array, weights: Array, *, ignored: int, scratch: Bytes) -> None:
    """The rows that count share what all would have."""
    (out,) = carve(scratch, (target.shape, np.bool_))
    np.equal(target, ignored, out=out)
    counted = out.size - int(np.count_nonzero(out))
    np.copyto(ids, target)
    np.copyto(ids, 0, where=out)
    weights.fill(out.size / max(1, counted))
    np.copyto(weights, 0, where=out)


@scratch(_MASK.bytes)
def weigh(x: Array, weights: Array, y: Array, *, scratch: Bytes) -> None:
    """Infinity times 0 would be NaN."""
    for values, factors, target, out in _MASK.blocks(scratch, x, weights, y):
        np.equal(factors, 0, out=out)
        with np.errstate(invalid="ignore"):
            np.multiply(values, factors, out=target)
        np.copyto(target, 0, where=out)


def _rows(scores: Array, target: Array, vector: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Some rows at a time of scores, their ids as indices, and of a vector. IndexError where an id names no class."""
    labels_of(scores, target)
    for start in range(0, len(target), _ROWS):
        rows = slice(start, start + _ROWS)
        yield scores[rows], target[rows].astype(np.intp), vector[rows]


def _row_buffer(vector: Shaped) -> BufferSpec:
    return (min(max(vector.size, 1), _ROWS),), vector.dtype


@scratch(lambda x, target, losses, **_: bytes_for(_row_buffer(losses)))
def smooth_labels(x: Array, target: Array, losses: Array, *, share: float, scratch: Bytes) -> None:
    """losses += share * (own score - mean score)."""
    (averages,) = carve(scratch, _row_buffer(losses))
    for scores, ids, values in _rows(x, target, losses):
        average = averages[: len(ids)]
        np.einsum("ij->i", scores, out=average)
        np.divide(average, -x.shape[1], out=average)
        np.add(average, scores[np.arange(len(ids)), ids], out=average)
        np.multiply(average, share, out=average)
        np.add(values, average, out=values)


@scratch(lambda dlosses, target, dx, **_: bytes_for(_row_buffer(dlosses)))
def smooth_labels_derivative(dlosses: Array, target: Array, dx: Array, *, share: float, scratch: Bytes) -> None:
    """dx -= dlosses * share / c, and += dlosses * share at the target's class."""
    (slopes,) = carve(scratch, _row_buffer(dlosses))
    for scores, ids, values in _rows(dx, target, dlosses):
        slope = np.multiply(values, share / dx.shape[1], out=slopes[: len(ids)])
        np.subtract(scores, slope[:, None], out=scores)
        np.multiply(values, share, out=slope)
        scores[np.arange(len(ids)), ids] += slope
