"""The least value of the requests alive in each section, for values that change all the time."""

from __future__ import annotations

import numpy as np

from singa_lite.compiler.placement.table import Indices, Ints

LISTED = 16_000  # members of all sections together, up to which they are simply listed


class Floors:
    """The minimum by section, shape (sections,), of values by request, shape (n,); `empty` where none is alive.

    Each lifespan is covered by blocks of 2**k sections, two of the largest that fit, as in a sparse table for
    range minima; a block's minimum then sinks to its halves. That takes n + s log s for s sections. For small
    problems the blocks are single sections, and nothing has to sink.
    """

    def __init__(self, first: Indices, stop: Indices, empty: int) -> None:
        self._sections = int(stop.max())
        length = stop - first
        if int(length.sum()) <= LISTED:
            self._levels = 1
            requests = np.repeat(np.arange(len(first)), length)
            cells = np.arange(len(requests)) - np.repeat(np.cumsum(length) - length, length) + first[requests]
        else:
            level = np.frexp(length)[1].astype(np.int64) - 1  # floor(log2(length))
            self._levels = int(level.max()) + 1
            requests = np.tile(np.arange(len(first)), 2)
            cells = np.concatenate([first, stop - (1 << level)]) + np.tile(level, 2) * self._sections
        order = np.argsort(cells, kind="stable")
        self._requests = requests[order]
        self._cells, self._starts = np.unique(cells[order], return_index=True)
        self._empty = empty

    def __call__(self, values: Ints) -> Ints:
        """The minimum of `values` by section."""
        table = np.full(self._levels * self._sections, self._empty, values.dtype)
        table[self._cells] = np.minimum.reduceat(values[self._requests], self._starts)
        if self._levels == 1:
            return table
        rows = table.reshape(self._levels, self._sections)
        for level in range(self._levels - 1, 0, -1):
            upper, lower, half = rows[level], rows[level - 1], 1 << (level - 1)
            np.minimum(lower, upper, out=lower)
            np.minimum(lower[half:], upper[:-half], out=lower[half:])
        least: Ints = rows[0]
        return least
