"""Greedy placement: requests in some order, each into the lowest hole that fits; and a portfolio of orders."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import inf

import numpy as np

from singa_lite.compiler.placement.table import Indices, Ints, Table


class Layout:
    """The requests of a table placed so far, by ascending offset; in units.

    Kept as rows of first section, stop, offset and top, so that one insertion moves all four.
    """

    def __init__(self, table: Table) -> None:
        self._count = 0
        self._rows = np.empty((4, len(table)), table.size.dtype)
        self._first, self._stop = table.first.tolist(), table.stop.tolist()
        self._size = table.size.tolist()

    def around(self, i: int) -> tuple[Ints, Ints]:
        """Offsets and tops of the placed requests that share a section with request i, by ascending offset."""
        first, stop, offsets, tops = self._rows[:, : self._count]
        near = np.flatnonzero((first < self._stop[i]) & (stop > self._first[i]))
        return offsets[near], tops[near]

    def put(self, i: int, offset: int) -> None:
        """Enter request i at this offset."""
        count, rows = self._count, self._rows
        at = int(rows[2, :count].searchsorted(offset))
        rows[:, at + 1 : count + 1] = rows[:, at:count]
        rows[:, at] = self._first[i], self._stop[i], offset, offset + self._size[i]
        self._count += 1


def lowest_hole(offsets: Ints, tops: Ints, size: int, alignment: int) -> int:
    """The lowest offset, a multiple of `alignment`, with `size` units free; of neighbors by ascending offset."""
    if not len(offsets) or offsets[0] >= size:
        return 0
    below = np.maximum.accumulate(tops)
    if alignment > 1:
        below += -below % alignment
    fits = offsets[1:] - below[:-1] >= size
    at = int(fits.argmax()) if len(fits) else 0
    return int(below[at] if len(fits) and fits[at] else below[-1])


def place(table: Table, order: Indices, limits: Ints, layout: Layout) -> Ints | None:
    """Offsets, in units, of the requests put one by one, in this order, into the lowest hole each.

    None as soon as one would lie above its limit. `layout` is empty at first.
    """
    offsets = np.zeros(len(table), table.size.dtype)
    rows = zip(*(column[order].tolist() for column in (table.size, table.alignment, limits)), strict=True)
    for i, (size, alignment, limit) in zip(order.tolist(), rows, strict=True):
        offset = lowest_hole(*layout.around(i), size, alignment)
        if offset > limit:
            return None
        layout.put(i, offset)
        offsets[i] = offset
    return offsets


def orders(table: Table) -> Iterator[tuple[str, Indices]]:
    """Names of orders and the orders, those that most often end lowest first; ties stay as in the table."""
    length = table.stop - table.first
    keys: dict[str, tuple[Ints, ...]] = {
        "size": (-table.size, -length),
        "load and size": (-table.peak, -table.size),
        "load and duration": (-table.peak, -length, -table.size),
        "conflicts": (-table.conflicts, -table.size),
        "area": (-table.size * length,),
        "duration": (-length, -table.size),
        "start": (table.first, -length),
        "end": (-table.stop, -length),
    }
    for name, columns in keys.items():
        yield name, np.lexsort(columns[::-1])


def greedy(table: Table, enough: int, deadline: float = inf) -> tuple[str, Ints]:
    """The name of the order that ended lowest, and the offsets in units.

    Orders are tried until an arena is at most `enough` bytes, or the deadline, in seconds of time.perf_counter,
    has passed.
    """
    arena, best, offsets = 0, "", np.zeros_like(table.size)
    limits = table.limits(int((table.size + table.alignment).sum()) * table.unit)  # no stack is higher
    for name, order in orders(table):
        found = place(table, order, limits, Layout(table))
        if found is not None:
            best, offsets = f"greedy by {name}", found
            arena = table.arena(found)
            limits = table.limits(arena - 1)
        if arena <= enough or time.perf_counter() > deadline:
            break
    return best, offsets
