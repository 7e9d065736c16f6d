"""Sums of activations by channels, exact to the last digits of float32 however many terms there are.

A batch of images has so many elements that their sum in float32 is off by hundreds of roundings, and their variance is
wrong in all digits where the mean is large. So only few terms at a time are added up in float32 (`running_sums.py` has
the pieces, parts and lines), and the results of that in float64:

    64 pieces -> piece -> part -> line 0        the channels of all lines, in float64, on the host -> totals
    64 pieces -> piece -> part -> line 1
    ...

Where the mean is large, x is shifted by it first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.pitched import Span
from singa_lite.kernels.onednn_kernels.routine import BufferView
from singa_lite.kernels.onednn_kernels.sums.columns import Activations, Columns
from singa_lite.kernels.onednn_kernels.sums.running_sums import ACCUMULATE, SQUARE, Link, RunningSums
from singa_lite.kernels.routine import Temporary

#: How a span of pixels is shifted before it is summed: its descriptor, and the links that each element goes through.
Move = Callable[[Span], tuple[p.MemoryDesc, Sequence[Link]]]

#: Adds steps for a span of pixels, primitives only. Returns where these pixels of some activations stand then, as
#: `Columns.near` does, by the `id` of the activations.
Before = Callable[[Span], Mapping[int, tuple[BufferView, Span]]]

#: Pieces that are added up in float32: the error grows with the square root of their number.
_PIECES = 1 << 6


class Moments(NamedTuple):
    """By channels, float64, (c,)."""

    variance: Temporary
    mean: Temporary


class Totals(NamedTuple):
    """The sums by channels, float64, (c,): of x, as shifted, times the other tensor, and of the other tensor."""

    products: Temporary
    sums: Temporary


class ChannelSums:
    """Adds steps that sum x times another tensor, and that tensor, by channels, into `totals`."""

    def __init__(self, columns: Columns) -> None:
        self.columns, self.work, self._running = columns, columns.work, RunningSums(columns)
        piece, part, line = (
            pixels * columns.channels for pixels in (self._running.piece, self._running.part, self._running.line)
        )
        self._piece, self._part = (self.work.temporary((size,), "float32") for size in (piece, part))
        self._groups = _groups(columns.pixels, self._running.piece)
        self._products, self._sums = (self.work.temporary((len(self._groups), line), "float32") for _ in range(2))
        self.totals = Totals(*(self.work.temporary((columns.channels,), "float64") for _ in range(2)))

    def add(
        self, x: Activations, other: Activations | None = None, move: Move | None = None, before: Before | None = None
    ) -> None:
        """Add the steps. other: None for x itself, shifted as it is; move: how x is shifted, None for not at all.

        before: adds what is done with each span of pixels ahead of its sums, which find its results in the caches.
        """
        self.work.call(_clear, self._products, self._sums)
        for index, pieces in enumerate(self._groups):
            if move is not None and other is None:
                self._add_moments(index, pieces, x, move)
            else:
                self._add_products(index, pieces, x, x if other is None else other, move or self._as_it_lies, before)
        self.work.call(self._adder(), self._products, self.totals.products)
        self.work.call(self._adder(), self._sums, self.totals.sums)

    def less(self, shift: BufferView) -> Move:
        """The move that subtracts a shift, a vector of channels, from x."""
        columns = self.columns
        link = Link(a.SUBTRACT, columns.vector_desc, columns.vector(shift))
        return lambda span: (columns.part_desc(span.length), [link])

    @property
    def longest(self) -> int:
        """Pixels of the longest span."""
        return self._running.piece

    @property
    def line(self) -> Temporary:
        """Float64, for others to work in behind the steps that sum."""
        return self._piece.part(0, self._piece.shape[0] // 2, "float64")

    def _as_it_lies(self, span: Span) -> tuple[p.MemoryDesc, Sequence[Link]]:
        """The move that leaves x as it is."""
        return self.columns.part_desc(span.length), ()

    def _add_products(
        self,
        index: int,
        pieces: Sequence[Span],
        x: Activations,
        other: Activations,
        move: Move,
        before: Before | None = None,
    ) -> None:
        """Add the steps of a group. The other tensor is summed right after its product, while it is in the caches."""

        def add(span: Span) -> None:
            there = {} if before is None else before(span)
            desc, links = move(span)
            near = there.get(id(x)) or self.columns.near(x, span)
            other_near = near if other is x else there.get(id(other)) or self.columns.near(other, span)
            by = Link(a.MULTIPLY, desc, self.columns.part(*other_near))
            self._accumulate(span == pieces[0], self.columns.part(*near), desc, [*links, by])
            self._running.fold(*other_near, self._running.part, self._part)

        self.work.call(_clear, self._part)
        self.work.repeat(pieces, add)
        self._fold_part(self._sums, index)
        self._fold_piece(self._products, index, pieces[0].length)

    def _add_moments(self, index: int, pieces: Sequence[Span], x: Activations, move: Move) -> None:
        """Add the steps of a group. Shifted x is stored nowhere, so x is read twice: for squares, then for sums."""
        for ends, lines in (([SQUARE], self._products), ([], self._sums)):

            def add(span: Span, ends: Sequence[p.PostOp] = ends) -> None:
                source = self.columns.part(*self.columns.near(x, span))
                self._accumulate(span == pieces[0], source, *move(span), ends)

            self.work.repeat(pieces, add)
            self._fold_piece(lines, index, pieces[0].length)

    def _accumulate(
        self,
        is_first: bool,
        x: BufferView,
        desc: p.MemoryDesc,
        links: Sequence[Link],
        ends: Sequence[p.PostOp] = (),
    ) -> None:
        """Add a step: the result of this piece x is stored if it is the group's first, else added to the others."""
        before = [] if is_first else [ACCUMULATE]
        self._running.run(desc, x, links, [*ends, *before], self._piece)

    def _fold_piece(self, lines: Temporary, index: int, pixels: int) -> None:
        """Add steps: the piece is folded into one of the lines. pixels: of the longest piece of the group."""
        self.work.call(_clear, self._part)
        self._running.fold(self._piece, Span(0, pixels), self._running.part, self._part)
        self._fold_part(lines, index)

    def _fold_part(self, lines: Temporary, index: int) -> None:
        """Add steps: the part is folded into one of the lines."""
        line = self._running.line
        target = self.columns.part(lines, Span(index * line, line))
        self._running.fold(self._part, Span(0, self._running.part), line, target)

    def _adder(self) -> Callable[[Array, Array], object]:
        """For a step on the host: total = the sums by channels over all lines, in float64."""
        columns = self.columns
        return partial(_add_up, columns.channels, 0 if columns.lie_last else columns.unit)


def _add_up(channels: int, unit: int, lines: Array, total: Array) -> None:
    if not unit:  # channels lie last
        np.add.reduce(lines.reshape(-1, channels), axis=0, dtype=np.float64, out=total)
    else:
        np.add.reduce(lines.reshape(-1, channels, unit), axis=(0, 2), dtype=np.float64, out=total)


def _clear(*lines: Array) -> None:
    for line in lines:
        line.fill(0)


def _groups(pixels: int, piece: int) -> list[list[Span]]:
    """Pieces of so many pixels, the last one shorter, in about equal groups of at most `_PIECES`."""
    pieces = [Span(start, min(piece, pixels - start)) for start in range(0, pixels, piece)]
    count = -(-len(pieces) // _PIECES)
    each = -(-len(pieces) // count)
    return [pieces[first : first + each] for first in range(0, len(pieces), each)]
