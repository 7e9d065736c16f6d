"""What is beside a loss over rows of scores: which rows count, and smoothed labels."""

from __future__ import annotations

import numpy as np

from singa_lite.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import axis_buffer, pieces
from singa_lite.kernels.numpy_kernels.samples import LIMIT, labels_of
from singa_lite.kernels.numpy_kernels.scratch import Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.temporaries import Temporaries

_MASK = Temporaries(masks=1)


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


@scratch(lambda x, target, losses, **_: bytes_for(*[axis_buffer(x, 1, LIMIT)] * 2))
def smooth_labels(x: Array, target: Array, losses: Array, *, share: float, scratch: Bytes) -> None:
    """losses += share * (own score - mean score)."""
    averages, own = carve(scratch, *[axis_buffer(x, 1, LIMIT)] * 2)
    for xb, tb, target_losses in pieces(x, labels_of(x, target), losses[:, None], whole=(1,), limit=LIMIT):
        average, score = shaped(averages, tb.shape), shaped(own, tb.shape)
        np.add.reduce(xb, axis=1, keepdims=True, out=average)
        np.divide(average, xb.shape[1], out=average)
        np.copyto(score, np.take_along_axis(xb, tb, axis=1))
        np.subtract(score, average, out=score)
        np.multiply(score, share, out=score)
        np.add(target_losses, score, out=target_losses)


def _derivative_rule(dlosses: Shaped, target: Shaped, dx: Shaped, **_: object) -> int:
    """Scratch of `smooth_labels_derivative`."""
    return bytes_for(*[axis_buffer(dx, 1, LIMIT)] * 2)


@scratch(_derivative_rule)
def smooth_labels_derivative(dlosses: Array, target: Array, dx: Array, *, share: float, scratch: Bytes) -> None:
    """dx -= dlosses * share / c, and += dlosses * share at the target's class."""
    moved, own = carve(scratch, *[axis_buffer(dx, 1, LIMIT)] * 2)
    for dxb, tb, slopes in pieces(dx, labels_of(dx, target), dlosses[:, None], whole=(1,), limit=LIMIT):
        all_of_row, more = shaped(moved, tb.shape), shaped(own, tb.shape)
        np.multiply(slopes, share, out=more)
        np.divide(more, dx.shape[1], out=all_of_row)
        np.subtract(dxb, all_of_row, out=dxb)
        np.add(more, np.take_along_axis(dxb, tb, axis=1), out=more)
        np.put_along_axis(dxb, tb, more, axis=1)
