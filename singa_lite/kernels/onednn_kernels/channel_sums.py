"""Sums of activations by channels, exact to the last digits of float32 however many terms there are.

A sum in float32 of so many terms as a batch of images has is off by hundreds of roundings, and a variance by all of its
digits where the mean is large. So pieces are added up by columns, of few terms each, and what the columns give is added
up in float64. Where the mean is large, x is first moved by it, piece by piece in the cache.

The library has one fast sum across memory that multiplies too: the gradient of a depthwise convolution with filters of
one element is sum(dy * x), and that of its bias sum(dy).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from singa_lite.kernels.onednn_kernels import algorithms as a
from singa_lite.kernels.onednn_kernels import forms
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.columns import Columns
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import Operand, Temporary
from singa_lite.kernels.onednn_kernels.work import Work

Array = np.ndarray[Any, Any]
Matrix = tuple[int, int]
#: Adds steps that fill a target with what lies in a source, both pieces: of so many pixels from that one on.
Move = Callable[[Operand, Operand, int, int], None]

#: Elements of a piece: with what it is multiplied by it stays in the caches of the cores.
_PIECE = 1 << 18
#: Terms of a column's sum in float32, where x is read as it lies. The error of the whole grows with their root.
_FEWEST_TERMS, _MOST_TERMS = 1 << 4, 1 << 6

_DIRECT = 1
_ONE_ELEMENT = p.dims((1, 1)), p.dims((0, 0)), p.dims((0, 0)), p.dims((0, 0))


class Totals(NamedTuple):
    """Places of the sums, float64, (c,): of x, as it was moved, times the other tensor, and of that tensor."""

    products: Temporary
    sums: Temporary


class ChannelSums:
    """Adds steps that sum x times another tensor, and that tensor, by channels, into `totals`.

    is_fast: whether the library has code for it. Pieces are whole rows of the matrix, and whole samples of images in C
    order, which are put channels last.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns, self.work = columns, columns.work
        unit, rows = columns.unit, columns.rows // columns.unit
        step = min(rows, max(1, _PIECE // (columns.channels * unit)))
        terms = min(rows, _MOST_TERMS, max(_FEWEST_TERMS, rows // 8)) if columns.lie_last else step
        #: Pixels of a piece that is moved or converted, and of one that is read as it lies.
        self._step, self._long_step = step * unit, terms * unit
        self._sum = cache(lambda matrix: _sum(self.work, matrix))
        self._subtraction = cache(lambda matrix: _subtraction(self.work, matrix))
        self._reorder = cache(lambda samples: _reorder((samples, *columns.shape[1:])))
        first = self._sum(columns.matrix(self._step))
        self.is_fast = "ref" not in first.implementation
        self._width = first.form(f.DIFF_WEIGHTS).nbytes // forms.FLOAT.itemsize
        most = -(-columns.rows // min(self._step, self._long_step))
        self._parts = [self.work.temporary((most, self._width), "float32") for _ in range(2)]
        self._centred, self._other = self._place(), None if columns.lie_last else self._place()
        self.totals = Totals(*(self.work.temporary((columns.channels,), "float64") for _ in range(2)))

    def _place(self) -> Temporary:
        return self.work.temporary((self._step * self.columns.channels,), "float32")

    def add(self, x: Operand, other: Operand | None = None, move: Move | None = None) -> None:
        """Add the steps. other: x as moved if None; move: adds steps that move a piece, none if None."""
        columns, step = self.columns, self._long_step if move is None else self._step
        pieces = [(start, min(step, columns.rows - start)) for start in range(0, columns.rows, step)]

        def add(piece: tuple[int, int]) -> None:
            start, count = piece
            source = self._piece(x, start, count, self._centred)
            if move is not None:
                move(source, self._centred, start, count)
                source = self._centred
            factor = source if other is None else self._piece(other, start, count, self._other)
            place = start // step * self._width
            products, sums = (self.work.part(part, place, self._width) for part in self._parts)
            operands = {f.SRC: source, f.DIFF_DST: factor, f.DIFF_WEIGHTS: products, f.DIFF_BIAS: sums}
            self.work.run(self._sum(columns.matrix(count)), operands)

        self.work.repeat(pieces, add)
        for parts, total in zip(self._parts, self.totals, strict=True):
            self._add_up(parts, len(pieces), total)

    def _add_up(self, parts: Temporary, count: int, total: Temporary) -> None:
        """Add a step: the sums of a channel in so many pieces."""
        columns = self.columns

        def add_up(parts: Array, row: Array, total: Array) -> None:
            np.add.reduce(parts[:count, : columns.count], axis=0, dtype=np.float64, out=row)
            np.add.reduce(row.reshape(columns.fold, columns.channels), axis=0, out=total)

        self.work.call(add_up, parts, self.work.temporary((columns.count,), "float64"), total)

    def less(self, shift: Operand) -> Move:
        """Moves by a vector of columns."""

        def move(source: Operand, target: Operand, start: int, count: int) -> None:
            operands = {f.SRC: source, f.SRC_1: shift, f.DST: target}
            self.work.run(self._subtraction(self.columns.matrix(count)), operands)

        return move

    def _piece(self, tensor: Operand, start: int, count: int, place: Operand | None) -> Operand:
        """Pixels of a tensor, the channels last. place: where to put them if they lie otherwise."""
        columns = self.columns
        part = self.work.part(tensor, start * columns.channels, count * columns.channels)
        if place is None or columns.lie_last:
            return part
        self.work.run(self._reorder(count // columns.unit), {f.SRC: part, f.DST: place})
        return place


def _sum(work: Work, matrix: Matrix) -> Primitive:
    """Sums down the columns of two matrices' product, element by element, and of the second one."""
    terms, columns = matrix
    image = forms.dense((1, columns, 1, terms), axes=forms.CHANNELS_LAST)
    tensors = image, forms.chosen((columns, 1, 1, 1, 1)), forms.dense((columns,)), image, *_ONE_ELEMENT
    hint = work.make("convolution_forward", f.FORWARD_TRAINING, _DIRECT, *tensors)
    return work.make("convolution_backward_weights", _DIRECT, *tensors, forward=hint)


def _subtraction(work: Work, matrix: Matrix) -> Primitive:
    """A row subtracted from each row of a matrix."""
    return work.make("binary", a.SUBTRACT, forms.dense(matrix), forms.dense((1, matrix[1])), forms.dense(matrix))


def _reorder(shape: tuple[int, ...]) -> Primitive:
    """Images in C order, put channels last."""
    return p.Reorder(forms.dense(shape), forms.dense(shape, axes=forms.CHANNELS_LAST))
