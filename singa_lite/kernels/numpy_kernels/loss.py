"""Losses and their derivatives. A sample's loss is a mean over its positions, summed in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.activation import (
    log_one_plus_exp,
    normalize_exp,
    sigmoid,
    subtract_top,
)
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import axis_buffer, axis_shape, line_buffer, pieces
from singa_lite.kernels.numpy_kernels.samples import (
    LIMIT,
    add_to_samples,
    column,
    elements,
    is_rows,
    labels_of,
    positions,
    sample_buffers,
)
from singa_lite.kernels.numpy_kernels.scratch import BufferSpec, Bytes, Shaped, blocks, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.temporaries import Temporaries, by_blocks
from singa_lite.kernels.unweighted import clear_unweighted


def _class_buffers(x: Shaped, target: Shaped) -> list[BufferSpec]:
    """Two numbers a position, and for a target of rows its weights, all of one piece of x."""
    number = axis_buffer(x, 1, LIMIT)
    weights = [line_buffer(x, 1, LIMIT)] if is_rows(x, target) else []
    return [number, number, *weights]


def _normalize(rows: Array, weights: Array, sums: Array) -> None:
    """weights = rows / their sums along axis 1, in weights' dtype."""
    np.copyto(weights, rows, casting="unsafe")
    np.add.reduce(weights, axis=1, keepdims=True, out=sums)
    np.divide(weights, sums, out=weights)


def _cross_entropy_rule(x: Shaped, target: Shaped, losses: Shaped, p: Shaped) -> int:
    """Scratch of `softmax_cross_entropy`."""
    return bytes_for(*sample_buffers(x), *_class_buffers(x, target))


@scratch(_cross_entropy_rule)
def softmax_cross_entropy(x: Array, target: Array, losses: Array, p: Array, *, scratch: Bytes) -> None:
    """losses = log of the sum of e**z - sum of t * z, z = x - its largest: no logarithm of a p is taken."""
    labels = labels_of(x, target)
    totals, sums, log_sum, mean_score, *weights = carve(scratch, *sample_buffers(x), *_class_buffers(x, target))
    totals.fill(0)
    columns = column(totals, x.ndim), column(sums, x.ndim)
    for xb, pb, tb, total, subtotal in pieces(x, p, labels, *columns, whole=(1,), limit=LIMIT):
        number, expected = (shaped(a, axis_shape(xb.shape, 1)) for a in (log_sum, mean_score))
        subtract_top(xb, pb, 1, number)
        if is_rows(x, target):
            weight = shaped(weights[0], xb.shape)
            _normalize(tb, weight, expected)
            np.multiply(weight, pb, out=weight)
            np.add.reduce(weight, axis=1, keepdims=True, out=expected)
        else:
            np.copyto(expected, np.take_along_axis(pb, tb, axis=1))
        normalize_exp(pb, 1, number)
        np.log(number, out=number)
        np.subtract(number, expected, out=number)
        add_to_samples(number, total, subtotal)
    np.divide(totals, positions(x), out=losses)


def _factor_buffer(dlosses: Shaped) -> BufferSpec:
    """What a sample's derivatives are multiplied with."""
    return dlosses.shape, dlosses.dtype


def _cross_entropy_derivative_rule(dlosses: Shaped, p: Shaped, target: Shaped, dx: Shaped) -> int:
    """Scratch of `softmax_cross_entropy_derivative`."""
    return bytes_for(_factor_buffer(dlosses), *_class_buffers(p, target))


@scratch(_cross_entropy_derivative_rule)
def softmax_cross_entropy_derivative(dlosses: Array, p: Array, target: Array, dx: Array, *, scratch: Bytes) -> None:
    """dx = dlosses / positions * (p - t)."""
    labels = labels_of(p, target)
    factors, numbers, _, *weights = carve(scratch, _factor_buffer(dlosses), *_class_buffers(p, target))
    np.divide(dlosses, positions(p), out=factors)
    factor_column = column(factors, p.ndim)
    for pb, dxb, tb, factor in pieces(p, dx, labels, factor_column, whole=(1,), limit=LIMIT):
        if is_rows(p, target):
            weight = shaped(weights[0], pb.shape)
            _normalize(tb, weight, shaped(numbers, axis_shape(pb.shape, 1)))
            np.subtract(pb, weight, out=dxb)
        else:
            np.copyto(dxb, pb)
            np.put_along_axis(dxb, tb, np.take_along_axis(dxb, tb, axis=1) - 1, axis=1)
        np.multiply(dxb, factor, out=dxb)
    clear_unweighted(dlosses, dx)


#: Writes values(x, t) into its third argument; the second holds t in x's dtype and is used up.
Formula = Callable[[Array, Array, Array], None]

PAIR = Temporaries(floats=2)


def _mean_rule(x: Shaped, target: Shaped, losses: Shaped, **settings: object) -> int:
    """Scratch of `_mean_over_samples`."""
    return bytes_for(*sample_buffers(x), *PAIR.buffers(x))


def _mean_over_samples(formula: Formula, x: Array, target: Array, losses: Array, scratch: Bytes) -> None:
    """losses = means over each sample of the formula's values."""
    totals, sums, *temporaries = carve(scratch, *sample_buffers(x), *PAIR.buffers(x))
    totals.fill(0)
    for xb, tb, total, subtotal in pieces(x, target, column(totals, x.ndim), column(sums, x.ndim)):
        t, values = (shaped(a, xb.shape) for a in temporaries)
        np.copyto(t, tb, casting="unsafe")
        formula(xb, t, values)
        add_to_samples(values, total, subtotal)
    np.divide(totals, elements(x), out=losses)


@scratch(_mean_rule)
def sigmoid_cross_entropy(x: Array, target: Array, losses: Array, *, scratch: Bytes) -> None:
    """losses = mean over the sample of max(x, 0) - x * t + log(1 + e**-|x|)."""

    def formula(x: Array, t: Array, values: Array) -> None:
        np.multiply(x, t, out=t)
        log_one_plus_exp(x, values)
        np.subtract(values, t, out=values)
        np.maximum(x, 0, out=t)
        np.add(values, t, out=values)

    _mean_over_samples(formula, x, target, losses, scratch)


def _sample_factor_rule(dlosses: Shaped, *others: object, **settings: object) -> int:
    """Scratch of a derivative that multiplies each sample by its own factor."""
    return bytes_for(_factor_buffer(dlosses))


def _sample_pieces(dlosses: Array, x: Array, target: Array, dx: Array, scratch: Bytes) -> Iterator[tuple[Array, ...]]:
    """Pieces of x, target, dx and of dlosses / elements of a sample."""
    (factors,) = carve(scratch, _factor_buffer(dlosses))
    np.divide(dlosses, elements(x), out=factors)
    return pieces(x, target, dx, column(factors, x.ndim))


@scratch(_sample_factor_rule)
def sigmoid_cross_entropy_derivative(dlosses: Array, x: Array, target: Array, dx: Array, *, scratch: Bytes) -> None:
    """dx = dlosses / elements of a sample * (sigmoid(x) - t)."""
    for xb, tb, dxb, factor in _sample_pieces(dlosses, x, target, dx, scratch):
        sigmoid(xb, dxb)
        np.subtract(dxb, tb, out=dxb)
        np.multiply(dxb, factor, out=dxb)


def squared_error(x: Array, target: Array, y: Array) -> None:
    """y = (x - target)**2 / 2."""
    for xb, tb, yb in blocks(x, target, y):
        np.subtract(xb, tb, out=yb)
        np.square(yb, out=yb)
        np.multiply(yb, 0.5, out=yb)


@by_blocks(floats=1)
def squared_error_derivative(dy: Array, x: Array, target: Array, dx: Array, difference: Array) -> None:
    """dx = dy * (x - target)."""
    np.subtract(x, target, out=difference)
    np.multiply(dy, difference, out=dx)


@scratch(_mean_rule)
def huber(x: Array, target: Array, losses: Array, *, delta: float, scratch: Bytes) -> None:
    """losses = mean over the sample of q * (2 * |r| - q) / 2, q = min(|r|, delta): both branches in one."""

    def formula(x: Array, t: Array, values: Array) -> None:
        np.subtract(x, t, out=values)
        np.abs(values, out=values)
        np.minimum(values, delta, out=t)
        np.multiply(values, 2, out=values)
        np.subtract(values, t, out=values)
        np.multiply(values, t, out=values)
        np.multiply(values, 0.5, out=values)

    _mean_over_samples(formula, x, target, losses, scratch)


@scratch(_sample_factor_rule)
def huber_derivative(dlosses: Array, x: Array, target: Array, dx: Array, *, delta: float, scratch: Bytes) -> None:
    """dx = dlosses / elements of a sample * clip(x - t, -delta, delta)."""
    for xb, tb, dxb, factor in _sample_pieces(dlosses, x, target, dx, scratch):
        np.subtract(xb, tb, out=dxb)
        np.clip(dxb, -delta, delta, out=dxb)
        np.multiply(dxb, factor, out=dxb)
