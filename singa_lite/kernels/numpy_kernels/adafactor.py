"""Adafactor's update: sums over the whole gradient, in float64, and then each element's step."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan, prod, sqrt

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface.update import AdafactorHyper
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, bytes_for, carve, scratch

_WIDE = np.dtype(np.float64)


def _buffers(
    gradient: Shaped,
    rate: Shaped,
    value: Shaped,
    row_var: Shaped | None,
    col_var: Shaped | None,
    *_: object,
    **__: object,
) -> list[BufferSpec]:
    """Two pieces of the gradient; sums of rows and columns, and one piece's."""
    piece = (min(BLOCK, gradient.size),)
    states = [state for state in (row_var, col_var) if state is not None]
    sums = [(max(min(BLOCK, state.size), *state.shape[-2:]),) for state in states]
    return [(shape, _WIDE) for shape in (piece, piece, *sums, *sums)]


@scratch(lambda *tensors, **settings: bytes_for(*_buffers(*tensors)))
def adafactor(
    gradient: Array,
    rate: Array,
    value: Array,
    row_var: Array | None,
    col_var: Array | None,
    variance: Array | None,
    count: Array,
    scale: Array | None,
    factor: Array,
    *,
    hyper: AdafactorHyper,
    scratch: Bytes,
) -> None:
    """Two passes over the gradient, as the columns' means are known behind the first, and one over the value."""
    if isnan(rate) or not gradient.size:
        return
    work = carve(scratch, *_buffers(gradient, rate, value, row_var, col_var))
    t, least = int(count.flat[0]) + 1, epsilon(hyper, gradient)
    share = t**hyper.beta_2_decay
    size = max(hyper.epsilon_2, sqrt(sum(_squares(piece, work[0]) for (piece,) in _pieces(value)) / value.size))
    if variance is None:
        matrices = _matrices(gradient, row_var, col_var, scale)
        total = sum(_factored(*found, share=share, least=least, work=work) for found in matrices)
    else:
        total = 0.0
        for piece, state in _pieces(gradient, variance):
            square = np.multiply(piece, piece, dtype=_WIDE, out=shaped(work[0], piece.shape))
            _move(state, square, share, shaped(work[1], piece.shape))
            total += _ratios(square, np.maximum(state, least**2, out=shaped(work[1], piece.shape)))
    clip = max(1.0, sqrt(total / gradient.size) / hyper.d)
    factor[...] = size * min(float(rate) * hyper.lr_mult, t**-0.5) / clip


def epsilon(hyper: AdafactorHyper, gradient: Array) -> float:
    """What means are held above."""
    return float(np.finfo(gradient.dtype).eps) if hyper.epsilon_1 is None else hyper.epsilon_1


def _factored(
    gradient: Array, row_var: Array, col_var: Array, scale: Array, *, share: float, least: float, work: list[Array]
) -> float:
    """Moves the means of some matrices, and returns the sum of the squares of their steps."""
    rows, columns = gradient.shape[-2:]
    row_sums, col_sums = shaped(work[2], row_var.shape), shaped(work[3], col_var.shape)
    row_sums.fill(0)
    col_sums.fill(0)
    for piece, of_rows, of_columns in _pieces(gradient, row_sums, col_sums):
        square = np.multiply(piece, piece, dtype=_WIDE, out=shaped(work[0], piece.shape))
        for sums, axis, own in ((of_rows, -1, work[4]), (of_columns, -2, work[5])):
            np.add(sums, np.add.reduce(square, axis=axis, keepdims=True, out=shaped(own, sums.shape)), out=sums)
    for sums, state, count, own in ((row_sums, row_var, columns, work[4]), (col_sums, col_var, rows, work[5])):
        np.divide(sums, count, out=sums)
        _move(state, sums, share, shaped(own, sums.shape))
    means = shaped(work[5], (*row_var.shape[:-2], 1, 1))
    np.add.reduce(row_var, axis=-2, keepdims=True, dtype=_WIDE, out=means)
    np.divide(means, rows, out=means)
    np.divide(row_var, np.maximum(means, least, out=means), out=scale, casting="same_kind")
    total = 0.0
    for piece, of_rows, of_columns in _pieces(gradient, scale, col_var):
        estimate = np.multiply(of_rows, of_columns, dtype=_WIDE, out=shaped(work[1], piece.shape))
        square = np.multiply(piece, piece, dtype=_WIDE, out=shaped(work[0], piece.shape))
        total += _ratios(square, np.maximum(estimate, least**2, out=estimate))
    return total


@scratch(lambda gradient, *others, **settings: bytes_for(_step_buffer(gradient)))
def adafactor_step(
    gradient: Array,
    rate: Array,
    value: Array,
    scale: Array | None,
    col_var: Array | None,
    variance: Array | None,
    factor: Array,
    count: Array,
    *,
    hyper: AdafactorHyper,
    scratch: Bytes,
) -> None:
    """Piece by piece."""
    if isnan(rate):
        return
    np.add(count, 1, out=count)
    (own,) = carve(scratch, _step_buffer(gradient))
    shrink, least = 1 - float(rate) * hyper.lr_mult * hyper.weight_decay, epsilon(hyper, gradient)
    states = [state for state in (scale, col_var, variance) if state is not None]
    for piece, target, first, *second in _pieces(gradient, value, *states):
        step = shaped(own, piece.shape)
        np.multiply(first, second[0] if second else 1, out=step)
        np.sqrt(np.maximum(step, least**2, out=step), out=step)
        np.multiply(np.divide(piece, step, out=step), float(factor), out=step)
        if shrink != 1:
            np.multiply(target, shrink, out=target)
        np.subtract(target, step, out=target)


def _step_buffer(gradient: Shaped) -> BufferSpec:
    return (min(BLOCK, gradient.size),), np.result_type(gradient.dtype, np.float32)


def _move(state: Array, mean: Array, share: float, own: Array) -> None:
    """state += share * (mean - state)."""
    np.multiply(np.subtract(mean, state, out=own), share, out=own)
    np.add(state, own, out=state, casting="same_kind")


def _squares(piece: Array, own: Array) -> float:
    """The sum."""
    wide = shaped(own, piece.shape)
    np.copyto(wide, piece)
    return float(np.add.reduce(np.multiply(wide, wide, out=wide), axis=None))


def _ratios(square: Array, estimate: Array) -> float:
    """The sum of square / estimate; square is used up."""
    return float(np.add.reduce(np.divide(square, estimate, out=square), axis=None))


def _matrices(*arrays: Array | None) -> Iterator[tuple[Array, ...]]:
    """Some whole matrices of all, about a piece of them at a time, or one."""
    given = tuple(array for array in arrays if array is not None)
    yield from _pieces(*given, limit=max(BLOCK, prod(given[0].shape[-2:])), axes=given[0].ndim - 2)


def _pieces(*arrays: Array, limit: int = BLOCK, axes: int | None = None) -> Iterator[tuple[Array, ...]]:
    """Pieces of at most `limit` elements, cut along the first axis that can be; an array of one element along it stays.

    axes: how many there are to cut along.
    """
    shape = arrays[0].shape
    if arrays[0].size <= limit:
        yield arrays
        return
    axis = next(axis for axis, extent in enumerate(shape[:axes]) if extent > 1)
    half = shape[axis] // 2
    for cut in (slice(None, half), slice(half, None)):
        place = (*[slice(None)] * axis, cut)
        parts = (array[place] if array.shape[axis] == shape[axis] else array for array in arrays)
        yield from _pieces(*parts, limit=limit, axes=axes)
