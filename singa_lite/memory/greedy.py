"""Greedy placement: requests in some order, each into the lowest hole that fits; and a portfolio of orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .table import Indices, Ints, Table


class Layout:
    """The requests placed so far, by ascending offset, for a Table; offsets in units.

    One row each for first section, stop, offset and top, so that an insertion moves all four at once.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.count = 0
        self._rows = np.empty((4, len(table)), table.size.dtype)

    def lowest(self, first: int, stop: int, size: int, alignment: int) -> int:
        """The lowest offset, a multiple of `alignment`, where `size` units are free in all these sections."""
        starts, stops, offsets, tops = self._rows[:, : self.count]
        near = np.flatnonzero((starts < stop) & (stops > first))
        if not len(near):
            return 0
        below = np.maximum.accumulate(tops[near])
        if alignment > 1:
            below += -below % alignment
        offsets = offsets[near]
        if offsets[0] >= size:
            return 0
        fits = offsets[1:] - below[:-1] >= size
        return int(below[fits.argmax()] if fits.any() else below[-1])

    def put(self, first: int, stop: int, offset: int, top: int) -> None:
        """Enter a request that lies from `offset` to `top`."""
        count, rows = self.count, self._rows
        at = int(rows[2, :count].searchsorted(offset))
        rows[:, at + 1 : count + 1] = rows[:, at:count]
        rows[:, at] = first, stop, offset, top
        self.count += 1


def place(table, order, limits=None):
    layout = Layout(table)
    offsets = np.empty(len(table), table.size.dtype)
    first, stop, size, alignment = table.first.tolist(), table.stop.tolist(), table.size.tolist(), table.alignment.tolist()
    for i in order.tolist():
        offset = layout.lowest(first[i], stop[i], size[i], alignment[i])
        layout.put(first[i], stop[i], offset, offset+size[i])
        offsets[i] = offset
    return offsets
