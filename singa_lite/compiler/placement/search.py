"""Exact branch and bound, in the manner of MiniMalloc: is there a placement within so many bytes?

Greedy placements reach the floor of nearly every training step. This search is for the rest, and it is exact: it finds
a placement, or proves that there is none, so that a plan can say "proved least". `field.py` says how few choices there
are at each node and how early a dead end is seen; here is how they are gone through.

    decide                      each component of requests, apart from the others in time, for itself
      attempt 0, 1, 2, ...      rounds: each order in turn, with twice the nodes of the round before
        solve                   depth first: which request comes next, by ascending (offset, rank)
          _next_frame           the field has fallen apart: its smaller components first, each by `solve`

Why rounds: the order that breaks ties, the rank, makes one problem easy and another hopeless, and nobody knows which
beforehand. As the budget doubles, all rounds together cost a fixed multiple of what the best order alone would take.
Why components are solved apart: n choices here and m there are n + m nodes, and n * m together. Why they are ranked
anew: the load of a section, by which two orders rank, is then that of what is left. Why a request that raises no other
one is never exchanged for another: whatever placement there is, it can lie where it does. Why nodes end a search,
and seconds only as a last resort: a plan must not depend on how fast the machine is.

Decisions within a capacity are all that it does. `planner.py` makes a smallest arena of them.

Sources: M. Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS
2023, and its program (github.com/google/minimalloc), which have three orders where there are six here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from singa_lite.compiler.placement.field import Field, Undo
from singa_lite.compiler.placement.table import Indices, Ints, Table

FIRST_NODES = 512  # of the first turn of each order
RANKED_ANEW = 128  # requests up to which the largest component, too, is ranked anew


class ExhaustedError(RuntimeError):
    """The nodes or the time given to a search are used up; it knows neither a placement nor that none exists."""


@dataclass(frozen=True)
class Order:
    """Ranks of requests, by columns of their table; the first column decides first."""

    columns: Callable[[Table], tuple[Ints, ...]]

    def ranked(self, table: Table) -> Indices:
        """The requests of a table by ascending columns; ties stay as in the table."""
        return np.lexsort(self.columns(table)[::-1])


ORDERS = (
    Order(lambda table: (-table.peak, -table.steps, -table.size)),
    Order(lambda table: (-table.peak, -table.length, -table.conflicts)),
    Order(lambda table: (-table.area, -table.length, -table.peak)),
    Order(lambda table: (-table.conflicts, -table.length, -table.area)),
    Order(lambda table: (-table.stop, -table.length, -table.area)),
    Order(lambda table: (table.first, -table.length, -table.area)),
)


@dataclass
class Budget:
    """Nodes that a search may still visit, and when it must end, in seconds of time.perf_counter."""

    nodes: float = inf
    deadline: float = inf

    def used_up(self) -> bool:
        """Whether no node is left, or it is too late."""
        return self.nodes <= 0 or (self.deadline < inf and time.perf_counter() > self.deadline)

    def spend(self) -> None:
        """Count one node; ExhaustedError if the budget is used up."""
        if self.used_up():
            raise ExhaustedError("wanted to visit one more node, received a budget that is used up")
        self.nodes -= 1

    def share(self, nodes: int) -> Budget:
        """A budget of so many nodes, or fewer, taken out of this one; ExhaustedError if this one is used up."""
        if self.used_up():
            raise ExhaustedError(f"wanted {nodes} nodes, received a budget that is used up")
        granted = min(nodes, self.nodes)
        self.nodes -= granted
        return Budget(granted, self.deadline)


def decide(table: Table, capacity: int, budget: Budget) -> Ints | None:
    """Offsets, in units, of a placement within `capacity` bytes; None if there is none.

    ExhaustedError if neither is found within the budget.
    """
    offsets = np.zeros(len(table), table.size.dtype)
    for members in table.components():
        component, turn = table.subset(members), 0
        while True:
            try:
                solution = search_round(component, capacity, turn, budget)
                break
            except ExhaustedError:
                if budget.used_up():
                    raise
                turn += 1
        if solution is None:
            return None
        offsets[members] = solution
    return offsets


def search_round(table: Table, capacity: int, turn: int, budget: Budget) -> Ints | None:
    """One round of `decide`: each of the orders, with twice the nodes of the turn before; turn 0 is the first.

    Which order serves best differs by magnitudes from one problem to the next.
    """
    limit = table.limits(capacity)
    slack = int((table.size * table.unit - table.nbytes).max())
    room = (capacity + slack) // table.unit
    if (limit < 0).any() or (table.load > room).any():
        return None
    nodes = max(FIRST_NODES, 2 * len(table)) << turn  # enough to come to an end once
    for order in ORDERS:
        share = budget.share(nodes)
        ranked = order.ranked(table)
        field = Field(table.subset(ranked), limit[ranked], np.zeros_like(limit), room)
        try:
            solution = solve(field, order, share)
        except ExhaustedError:
            continue
        budget.nodes += share.nodes
        if solution is not None:
            solution[ranked] = solution.copy()
        return solution
    raise ExhaustedError(f"wanted an answer in {nodes} nodes of each order, received none")


@dataclass
class _Frame:
    """One level of the search: what else may come next, and what the present choice has changed.

    members: where the requests of the field stand among those that are solved.
    """

    field: Field
    members: Indices
    candidates: Iterator[int]
    undo: Undo | None = None


def solve(field: Field, order: Order, budget: Budget) -> Ints | None:
    """Offsets for all requests of the field, which is ranked by this order; None if there are none.

    Depth first on a list of its own, since a step may have more requests than Python has stack. Recursion is
    only into fields of at most half the requests.
    """
    offsets = np.zeros(len(field.table), field.table.size.dtype)
    frames = [_Frame(field, np.arange(len(field.table)), field.candidates(-1, -1))]
    while frames:
        frame = frames[-1]
        if frame.undo is not None:
            frame.field.take_back(frame.undo)
            if not len(frame.undo.raised):  # the request is in nobody's way, so no other choice helps
                frames.pop()
                continue
            frame.undo = None
        i = next(frame.candidates, None)
        if i is None:
            frames.pop()
            continue
        budget.spend()
        frame.undo = undo = frame.field.place(i)
        offsets[frame.members[i]] = undo.offset
        if not frame.field.possible(undo):
            continue
        if not frame.field.alive:
            return offsets
        deeper = _next_frame(frame, undo, order, budget, offsets)
        if deeper is not None:
            frames.append(deeper)
    return None


def _next_frame(frame: _Frame, undo: Undo, order: Order, budget: Budget, offsets: Ints) -> _Frame | None:
    """The next level, once the smaller components of the field are solved; None if one cannot be.

    The largest component is ranked anew in a field of its own, unless the field is large and keeps most of it.
    """
    field = frame.field
    *smaller, largest = sorted(field.components(undo.request), key=len)
    for members in smaller:
        members = members[order.ranked(field.table.subset(members))]
        solution = solve(field.component(members), order, budget)
        if solution is None:
            return None
        offsets[frame.members[members]] = solution
        for member in members.tolist():
            field.settle(member, undo)
    if not smaller or len(largest) > max(RANKED_ANEW, len(field.table) // 2):
        return _Frame(field, frame.members, field.candidates(undo.offset, undo.request))
    members = largest[order.ranked(field.table.subset(largest))]
    part = field.component(members)
    return _Frame(part, frame.members[members], part.candidates(-1, -1))
