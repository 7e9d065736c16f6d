"""From requests to offsets: greedy placements first, then exact search where they do not reach the floor."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from singa_lite.compiler.placement import problem
from singa_lite.compiler.placement.problem import CapacityError, Plan, PlanError, Request, check_ids
from singa_lite.compiler.placement.search import Budget, ExhaustedError, search_round
from singa_lite.compiler.placement.table import Indices, Ints, Table, tabulate


def plan(
    requests: Sequence[Request],
    *,
    capacity: int | None = None,
    seconds: float = 5.0,
    nodes: float = inf,
) -> Plan:
    """Offsets for all requests, in the smallest arena that is found; or in one within `capacity` bytes.

    A portfolio of greedy placements comes first. Where none reaches the floor, branch and bound goes on until
    the arena is proved smallest, `seconds` have passed, or that many `nodes` of it were visited. Only the
    seconds make a result depend on the machine. With a capacity, the first placement within it is taken.

    CapacityError if no placement within the capacity was found: its message and `proved` say whether there is
    none. PlanError for ids that are not unique, or limits below 0.
    """
    start = time.perf_counter()
    _check_limits(capacity, seconds, nodes)
    check_ids(requests)
    budget = Budget(nodes, start + seconds)
    floor, components = _placed(requests, capacity, budget)
    largest = max(components or [_empty_component()], key=lambda component: component.arena)
    proved_floor = max(floor, largest.bound)
    result = Plan(
        _by_id(requests, components),
        largest.arena,
        floor,
        largest.arena == proved_floor,
        time.perf_counter() - start,
        largest.method,
    )
    if capacity is not None and result.arena > capacity:
        raise CapacityError(capacity, proved_floor > capacity, result)
    return result


def _check_limits(capacity: int | None, seconds: float, nodes: float) -> None:
    for name, value in (("capacity in bytes", capacity), ("seconds", seconds), ("nodes", nodes)):
        if value is not None and not value >= 0:  # so that NaN does not pass
            raise PlanError(f"wanted a {name} of 0 or more, received {value}")


@dataclass
class _Component:
    """Requests apart from all others in time, their best offsets so far, and what their arena is proved to need.

    offsets: in units of the table. bound, arena: in bytes.
    """

    table: Table
    method: str
    offsets: Ints
    bound: int = 0

    @classmethod
    def place(cls, table: Table, members: Ints, enough: int, deadline: float) -> _Component:
        """The component of these requests of the table, in greedy placement."""
        table = table.subset(members)
        return cls(table, *greedy(table, enough, deadline))

    @property
    def arena(self) -> int:
        """Bytes of the best placement so far."""
        return self.table.arena(self.offsets)

    def targets(self, enough: int, decision: bool) -> list[int]:
        """Arenas to try next, in bytes: the least that could be and, except for a decision, one halfway."""
        low = max(self.bound, enough)
        if decision or self.table.next_arena(low) >= self.arena:
            return [low]
        return [low, (low + self.arena) // 2]

    def narrow(self, target: int, turn: int, budget: Budget) -> None:
        """Find a placement within `target` bytes or prove that there is none; ExhaustedError if neither."""
        found = search_round(self.table, target, turn, budget)
        if found is None:
            self.bound = self.table.next_arena(target)
        else:
            self.offsets, self.method = found, "search"


def _empty_component() -> _Component:
    """What stands for no components at all. Not made at import: NumPy would load its masked arrays for it."""
    return _Component(tabulate([]), "nothing to place", np.zeros(0, np.int64))


def _placed(requests: Sequence[Request], capacity: int | None, budget: Budget) -> tuple[int, list[_Component]]:
    """The floor, and the components as well placed as the capacity asks for or the budget allows."""
    table, floor = tabulate(requests), problem.floor(requests)
    enough = floor if capacity is None else max(floor, capacity)
    components = [_Component.place(table, members, enough, budget.deadline) for members in table.components()]
    if capacity is None or floor <= capacity:
        _search(components, enough, capacity is not None, budget)
    return floor, components


def _search(components: list[_Component], enough: int, decision: bool, budget: Budget) -> None:
    """Improve the largest component until it is at most `enough`, proved to be smallest, or the budget is used up.

    Each target has its turn, then each one with twice the nodes, and so on: any may be the easy one. A gap below
    one unit, which only sizes that are no multiples of their alignment can leave, is not worth a second turn.
    """
    turn = 0
    while components and not budget.used_up():
        component = max(components, key=lambda component: component.arena)
        gap = component.arena - max(component.bound, enough)
        if gap <= 0 or (decision and component.bound > enough) or (turn and gap < component.table.unit):
            return
        for target in component.targets(enough, decision):
            try:
                component.narrow(target, turn, budget)
                break
            except ExhaustedError:
                continue
        else:
            turn += 1


def _by_id(requests: Sequence[Request], components: list[_Component]) -> dict[str, int]:
    """Offsets in bytes by id; 0 for requests of no bytes."""
    offsets = {request.id: 0 for request in requests}
    for component in components:
        for row, offset in zip(component.table.rows.tolist(), component.offsets.tolist(), strict=True):
            offsets[requests[row].id] = offset * component.table.unit
    return offsets


# ---- greedy placement: requests in some order, each into the lowest hole that fits; and a portfolio of orders


class Layout:
    """The requests of a table placed so far, by ascending offset; in units.

    Kept as rows of first section, stop, offset and top, so that one insertion moves all four.
    """

    def __init__(self, table: Table) -> None:
        self._count = 0
        self._rows = np.empty((4, len(table)), table.size.dtype)
        self._first, self._stop = table.first.tolist(), table.stop.tolist()
        self._size = table.size.tolist()

    def neighbors(self, i: int) -> tuple[Ints, Ints]:
        """Offsets and tops of the placed requests that share a section with request i, by ascending offset."""
        first, stop, offsets, tops = self._rows[:, : self._count]
        near = np.flatnonzero((first < self._stop[i]) & (stop > self._first[i]))
        return offsets[near], tops[near]

    def insert(self, i: int, offset: int) -> None:
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
        offset = lowest_hole(*layout.neighbors(i), size, alignment)
        if offset > limit:
            return None
        layout.insert(i, offset)
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
