"""Activations with the channels last as matrices of a few thousand columns: a few pixels side by side in a row.

Primitives are fast where rows are long and their length is a multiple of a vector's, whatever the channels are, and in
sums down a column few terms are added to one another. Images in C order are left as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_lite.kernels.onednn_kernels import forms
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.routine import Operand
from singa_lite.kernels.onednn_kernels.work import Work

Array = np.ndarray[Any, Any]

#: Columns that there are at least if the rows divide so; twice as many at most.
COLUMNS = 1 << 12


class Columns:
    """The matrix of images of this shape (n, c, h, w), for steps of `work`: fold pixels in a row.

    lie_last: whether the channels do, else the images are in C order. rows: pixels of all images; unit: of them, so
    many must not be parted, one folded row or one image in C order.
    """

    def __init__(self, work: Work, shape: tuple[int, ...], lie_last: bool, least: int = COLUMNS) -> None:
        self.work, self.shape, self.lie_last = work, shape, lie_last
        samples, self.channels, height, width = shape
        self.rows = samples * height * width
        self.fold = _fold(self.rows if self.lie_last else height * width, self.channels, least)
        self.unit = self.fold if self.lie_last else height * width

    @property
    def count(self) -> int:
        """Of the columns."""
        return self.fold * self.channels

    def matrix(self, rows: int) -> tuple[int, int]:
        """Shape of so many pixels."""
        return rows // self.fold, self.count

    def spread(self, vector: Array, row: Array) -> None:
        """Repeat a vector of channels along a row."""
        row.reshape(self.fold, self.channels)[...] = vector

    def vector(self, vector: Operand) -> Operand:
        """Add a step, if there need be: a vector of channels as `vector_form` wants it."""
        return self.row(vector) if self.lie_last else vector

    def row(self, vector: Operand) -> Operand:
        """Add a step, if there need be: a vector of channels, repeated along a row."""
        if self.fold == 1:
            return vector
        row = self.work.temporary((self.count,), "float32")
        self.work.call(self.spread, vector, row)
        return row

    @property
    def form(self) -> p.Form:
        """Of whole activations, to primitives that treat each element by itself: the matrix, or images in C order."""
        return self.piece_form(self.rows)

    def piece_form(self, rows: int) -> p.Form:
        """The form of so many pixels."""
        if self.lie_last:
            return forms.dense((*self.matrix(rows), 1, 1), axes=forms.CHANNELS_LAST)
        return forms.dense((rows // self.unit, *self.shape[1:]))

    @property
    def vector_form(self) -> p.Form:
        """Of what such primitives are given for each channel."""
        return forms.dense((1, self.count if self.lie_last else self.channels, 1, 1), axes=forms.CHANNELS_LAST)


def _fold(rows: int, channels: int, least: int) -> int:
    """A divisor of the rows that makes enough columns, a multiple of 16 of them if that can be."""
    most = max(1, 2 * least // channels)
    divisors = [fold for fold in range(1, min(rows, most) + 1) if rows % fold == 0]
    even = [fold for fold in divisors if fold * channels % 16 == 0] or divisors
    return next((fold for fold in even if fold * channels >= least), even[-1])
