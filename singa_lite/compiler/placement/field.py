"""State of the exact search while it stacks requests upward: least offsets, remaining load, open boundaries.

Ideas of MiniMalloc (M. Moffitt, ASPLOS 2023), in own words. In the placement with the smallest sum of offsets, read
upward, each request lies at its *least* offset: on the highest of the earlier ones that it shares a section with (a
section stands for steps, see `table.py`). So a search need not try offsets at all. It only chooses which request comes
next, and by ascending (offset, rank) alone, so that each placement is met once:

    offset
      6 |      C C C C      C shares sections with A and with B, and lies on the higher of the two
      4 |  . . . . B B      dots: lost, as whatever comes after C lies at 6 or above
      2 |  A A A . B B
      0 |  A A A . B B
           0 1 2 3 4 5      sections

What is left can be seen not to fit long before all is placed, and that is what makes the search fast:

* section inference: in each section, what is not yet placed lies above the least offset of its requests there, so that
  offset plus all their sizes must not pass the capacity (`possible`);
* monotonic floor: and above the last offset chosen, since offsets only rise (`_bounds`);
* dominance: nobody comes next at an offset where another one would fit below it (`candidates`);
* decomposition: where no request lives across a boundary any more, both sides are problems of their own (`components`).

All of it is kept in arrays by request and by section, changed by each choice and changed back by `Undo`: to make them
anew for each node would cost more than the node. A request enters in a few operations of NumPy, whatever its number of
sections, because a search in Python stands or falls with the number of Python's own instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from singa_lite.compiler.placement.table import Indices, Ints, Table

LISTED = 16_000  # members of all sections together, up to which `Floors` simply lists them


@dataclass
class Undo:
    """The change that placing one request made: the request, and the old least offsets."""

    request: int
    offset: int
    raised: Indices
    before: Ints
    settled: list[tuple[int, int]] = field(default_factory=list)  # others placed with it, and their offsets


class Floors:
    """Minima by section, shape (sections,), of values by request, shape (n,), that change all the time.

    `empty` stands where no request is alive.

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


class Field:
    """Requests still to be placed, in the order of their rank; offsets and sizes in units, lifespans in sections.

    table: the requests. limit: offset above which each cannot lie. least: offset below which it cannot lie; for those
    already placed the sentinel `placed`. room: units that the requests of a section may take together.
    load: units not yet placed, by section. crossing: requests not yet placed, by boundary between sections.
    alive: how many are not yet placed.
    """

    def __init__(self, table: Table, limit: Ints, least: Ints, room: int) -> None:
        self.table, self.limit, self.least, self.room = table, limit, least.copy(), room
        self.placed = 2 * (room + int(table.alignment.max())) + 1
        self.alive = len(table)
        self.load = table.load.copy()
        self._smallest = int(table.size.min())
        self.crossing = _count(table)
        self._floors = Floors(table.first, table.stop, self.placed)
        self._spans = list(zip(*(a.tolist() for a in (table.first, table.stop, table.size)), strict=True))
        self._twin = _twins(table, limit)
        self._by_first = np.argsort(table.first, kind="stable")

    def candidates(self, offset: int, rank: int) -> Iterator[int]:
        """The requests that may come next, after one at (offset, rank), lowest first. Read them in this same state.

        None is at or above the least top of another, which could be put below it (dominance). Of equal requests
        only the first may come.
        """
        least = self.least
        lowest_top = (least + self.table.size).min()
        found = np.flatnonzero((least < lowest_top) & (least >= offset))
        for i in map(int, found[least[found].argsort(kind="stable")]):
            twin = self._twin[i]
            if (least[i] > offset or i > rank) and (twin < 0 or least[twin] == self.placed):
                yield i

    def place(self, i: int) -> Undo:
        """Put request i at its least offset and raise those that now lie above it."""
        first, stop, size = self._spans[i]
        offset = int(self.least[i])
        top = offset + size
        self.least[i] = self.placed
        table = self.table
        raised = np.flatnonzero((table.first < stop) & (table.stop > first) & (self.least < top))
        undo = Undo(i, offset, raised, self.least[raised])
        self.least[raised] = top if table.aligned else top + -top % table.alignment[raised]
        self._take(i, 1)
        return undo

    def settle(self, i: int, undo: Undo) -> None:
        """Place request i at its least offset without raising others; it goes back with `undo`."""
        undo.settled.append((i, int(self.least[i])))
        self.least[i] = self.placed
        self._take(i, 1)

    def take_back(self, undo: Undo) -> None:
        """Take back what placing a request changed."""
        for i, offset in [*undo.settled, (undo.request, undo.offset)]:
            self.least[i] = offset
            self._take(i, -1)
        self.least[undo.raised] = undo.before  # last, since some of these were settled after they were raised

    def _take(self, i: int, count: int) -> None:
        first, stop, size = self._spans[i]
        self.load[first:stop] -= count * size
        self.crossing[first : stop - 1] -= count
        self.alive -= count

    def possible(self, undo: Undo) -> bool:
        """Whether the rest may still fit: each within its limit, and all of a section above the least of them.

        Section inference, with the monotonic floor: what is not yet placed lies at the last offset or above.
        """
        if (self.least[undo.raised] > self.limit[undo.raised]).any():
            return False
        floors = self._floors(self._bounds(undo))
        return not ((floors + self.load > self.room) & (self.load > 0)).any()

    def _bounds(self, undo: Undo) -> Ints:
        """Offsets that what is not yet placed cannot lie below, since all come after the last one.

        Some were passed over: their turn would have been before the last one's. Such a request can still be placed once
        another one has raised it, so it cannot lie below the lowest top of those that share a section with it.
        """
        offset, least = undo.offset, self.least
        bounds = np.maximum(least, offset)
        passed = least < offset
        passed[: undo.request] |= least[: undo.request] == offset
        waiting = np.flatnonzero(passed)
        if len(waiting):
            bounds[waiting] = offset + self._smallest
            tops = np.where(least < self.placed, bounds + self.table.size, self.placed)
            lowest = np.append(self._floors(tops), self.placed)
            spans = np.stack([self.table.first[waiting], self.table.stop[waiting]], axis=1).ravel()
            raised = np.minimum.reduceat(lowest, spans)[::2]
            bounds[waiting] = np.maximum(bounds[waiting], raised)
        return bounds

    def components(self, i: int) -> list[Indices]:
        """What is not yet placed, by component: there are several if placing i left some that share no section."""
        first, stop, _ = self._spans[i]
        order = self._by_first[self.least[self._by_first] < self.placed]
        if self.crossing[first : stop - 1].all() or not len(order):
            return [order]
        reach = np.maximum.accumulate(self.table.stop[order])
        cuts = np.flatnonzero(self.table.first[order][1:] >= reach[:-1]) + 1
        return [order[a:b] for a, b in pairwise([0, *cuts.tolist(), len(order)])]

    def component(self, members: Indices) -> Field:
        """A field of these requests alone, which are not yet placed, from their present least offsets on."""
        return Field(self.table.subset(members), self.limit[members], self.least[members], self.room)


def _count(table: Table) -> Indices:
    """How many requests are alive on both sides of each boundary between sections."""
    changes = np.bincount(table.first, minlength=len(table.load)) - np.bincount(
        table.stop - 1, minlength=len(table.load)
    )
    return np.cumsum(changes)[:-1]


def _twins(table: Table, limit: Ints) -> list[int]:
    """For each request the last one before it with the same lifespan, size, alignment and limit; -1 for none.

    The least offsets of such are equal as long as both are not placed.
    """
    columns = (table.first, table.stop, table.size, table.alignment, limit)
    last: dict[tuple[int, ...], int] = {}
    twins = []
    for i, key in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        twins.append(last.get(key, -1))
        last[key] = i
    return twins
