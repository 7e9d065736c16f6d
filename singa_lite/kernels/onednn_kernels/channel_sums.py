"""Sums of activations by channels, exact to the last digits of float32 however many terms there are.

A sum in float32 of so many terms as a batch of images has is off by hundreds of roundings, and a variance by all of its
digits where the mean is large. So a few dozen terms at a time are added up in float32, and what they give in float64.
Where the mean is large, x is moved by it on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from singa_lite.kernels.onednn_kernels import algorithms as a
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.columns import Columns
from singa_lite.kernels.onednn_kernels.routine import Operand
from singa_lite.kernels.onednn_kernels.running_sums import ACCUMULATE, SQUARE, Link, RunningSums
from singa_lite.kernels.routine import Temporary

Array = np.ndarray[Any, Any]
#: The first pixel and the count of some.
Pixels = tuple[int, int]
#: How some pixels are moved before they are summed: their form, and what is done with each element in turn.
Move = Callable[[int, int], tuple[p.Form, Sequence[Link]]]

#: Pieces that are added up in float32. The error of the whole grows with the root.
_PIECES = 1 << 6


class Totals(NamedTuple):
    """Places of the sums, float64, (c,): of x, as it was moved, times the other tensor, and of that tensor."""

    products: Temporary
    sums: Temporary


class ChannelSums:
    """Adds steps that sum x times another tensor, and that tensor, by channels, into `totals`."""

    def __init__(self, columns: Columns) -> None:
        self.columns, self.work, self._running = columns, columns.work, RunningSums(columns)
        piece, part, line = (rows * columns.channels for rows in (self._running.rows, *self._running.part_rows))
        self._piece, self._part = (self.work.temporary((size,), "float32") for size in (piece, part))
        self._shares = list(_shares(columns.rows, self._running.rows))
        self._products, self._sums = (self.work.temporary((len(self._shares), line), "float32") for _ in range(2))
        self.totals = Totals(*(self.work.temporary((columns.channels,), "float64") for _ in range(2)))

    def add(self, x: Operand, other: Operand | None = None, move: Move | None = None) -> None:
        """Add the steps. other: x as moved if None; move: how x is moved, not at all if None."""
        self.work.call(_clear, self._products, self._sums)
        for place, pieces in enumerate(self._shares):
            if move is not None and other is None:
                self._add_moments(place, pieces, x, move)
            else:
                self._add_products(place, pieces, x, x if other is None else other, move or self._as_it_lies)
        self.work.call(self._add_up, self._products, self.totals.products)
        self.work.call(self._add_up, self._sums, self.totals.sums)

    def _add_products(self, place: int, pieces: Sequence[Pixels], x: Operand, other: Operand, move: Move) -> None:
        """Add steps: the other tensor is read again while it is in the caches."""
        running = self._running

        def add(pixels: Pixels) -> None:
            form, links = move(*pixels)
            by = Link(a.MULTIPLY, form, running.pixels(other, *pixels))
            self._accumulate(pixels, pieces, x, form, [*links, by])
            running.fold(other, *pixels, running.part_rows[0], self._part)

        self.work.call(_clear, self._part)
        self.work.repeat(pieces, add)
        self._fold_part(self._sums, place)
        self._fold_piece(self._products, place)

    def _add_moments(self, place: int, pieces: Sequence[Pixels], x: Operand, move: Move) -> None:
        """Add steps: what is moved is nowhere stored, so that x is read for its squares, then for its sum."""
        for ends, lines in (([SQUARE], self._products), ([], self._sums)):

            def add(pixels: Pixels, ends: Sequence[p.PostOp] = ends) -> None:
                self._accumulate(pixels, pieces, x, *move(*pixels), ends)

            self.work.repeat(pieces, add)
            self._fold_piece(lines, place)

    def _fold_piece(self, lines: Temporary, place: int) -> None:
        """Add steps: the piece is added up to one of the lines."""
        self.work.call(_clear, self._part)
        self._running.fold(self._piece, 0, self._running.rows, self._running.part_rows[0], self._part)
        self._fold_part(lines, place)

    def _fold_part(self, lines: Temporary, place: int) -> None:
        part, line = self._running.part_rows
        self._running.fold(self._part, 0, part, line, self._running.pixels(lines, place * line, line))

    def _accumulate(
        self,
        pixels: Pixels,
        pieces: Sequence[Pixels],
        x: Operand,
        form: p.Form,
        links: Sequence[Link],
        ends: Sequence[p.PostOp] = (),
    ) -> None:
        """Add a step: what comes of some pixels of x is added to those before, the first ones are stored."""
        before = [] if pixels == pieces[0] else [ACCUMULATE]
        source = self._running.pixels(x, *pixels)
        self._running.run(form, source, links, [*ends, *before], self._piece)

    def _as_it_lies(self, start: int, count: int) -> tuple[p.Form, Sequence[Link]]:
        return self.columns.piece_form(count), ()

    def less(self, shift: Operand) -> Move:
        """Moves by a vector of channels."""
        columns = self.columns
        link = Link(a.SUBTRACT, columns.vector_form, columns.vector(shift))
        return lambda start, count: (columns.piece_form(count), [link])

    def _add_up(self, lines: Array, total: Array) -> None:
        """A step: the sums of a channel in all the lines."""
        columns = self.columns
        if columns.lie_last:
            np.add.reduce(lines.reshape(-1, columns.channels), axis=0, dtype=np.float64, out=total)
        else:
            images = lines.reshape(-1, columns.channels, columns.unit)
            np.add.reduce(images, axis=(0, 2), dtype=np.float64, out=total)


def _clear(*lines: Array) -> None:
    for line in lines:
        line.fill(0)


def _shares(rows: int, step: int) -> Iterator[list[Pixels]]:
    """Pieces of so many pixels, the last one shorter, in about equal groups of at most `_PIECES`."""
    pieces = [(start, min(step, rows - start)) for start in range(0, rows, step)]
    count = -(-len(pieces) // _PIECES)
    each = -(-len(pieces) // count)
    for first in range(0, len(pieces), each):
        yield pieces[first : first + each]
