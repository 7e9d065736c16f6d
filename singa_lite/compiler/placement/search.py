"""Exact branch and bound, in the manner of MiniMalloc: is there a placement within so many bytes?

Greedy placements reach the floor of nearly every training step. This search is for the rest, and it is exact: it finds
a placement, or proves that there is none, so that a plan can say "proved least". `field.py` says how few choices there
are at each node and how early a dead end is seen; here is how they are gone through.

    decide                      each component of requests, apart from the others in time, for itself
      attempt 0, 1, 2, ...      rounds: each static order in turn, with twice the nodes of the round before
        solve                   depth first: which request comes next, by ascending (offset, rank)
          _split                the field has fallen apart: its smaller components first, each by `solve`

Why rounds: the order that breaks ties, the rank, makes one problem easy and another hopeless, and nobody knows which
beforehand. As the budget doubles, all rounds together cost a fixed multiple of what the best order alone would take.
Why components are solved apart: n choices here and m there are n + m nodes, and n * m together. Why nodes end a search,
and seconds only as a last resort: a plan must not depend on how fast the machine is.

Decisions within a capacity are all that it does. `planner.py` makes a smallest arena of them.

Sources: M. Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS
2023, which has three static orders where there are five here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from singa_lite.compiler.placement.field import Field, Undo
from singa_lite.compiler.placement.table import Indices, Ints, Table

FIRST_NODES = 512  # of the first turn of each order
SMALL = 32  # requests up to which a smaller field is not worth making


class ExhaustedError(RuntimeError):
    """The nodes or the time given to a search are used up; it knows neither a placement nor that none exists."""


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
    """One round of `decide`: each of the static orders, with twice the nodes of the turn before; turn 0 is the first.

    Which order serves best differs by magnitudes from one problem to the next.
    """
    limit = table.limits(capacity)
    slack = int((table.size * table.unit - table.nbytes).max())
    room = (capacity + slack) // table.unit
    if (limit < 0).any() or (table.load > room).any():
        return None
    nodes = max(FIRST_NODES, 2 * len(table)) << turn  # enough to come to an end once
    for order in orders(table):
        share = budget.share(nodes)
        field = Field(table.subset(order), limit[order], np.zeros_like(limit), room)
        try:
            solution = solve(field, share)
        except ExhaustedError:
            continue
        budget.nodes += share.nodes
        if solution is not None:
            solution[order] = solution.copy()
        return solution
    raise ExhaustedError(f"wanted an answer in {nodes} nodes of each order, received none")


def orders(table: Table) -> Iterator[Indices]:
    """The static orders: by load, length of life, area, conflicts, and from both ends of time."""
    length = table.stop - table.first
    area = length * table.size
    keys = (
        (-table.peak, -length, -area),
        (-area, -length, -table.peak),
        (-table.conflicts, -length, -area),
        (-table.stop, -length, -area),
        (table.first, -length, -area),
    )
    for columns in keys:
        yield np.lexsort(columns[::-1])


@dataclass
class _Frame:
    """One level of the search: what else may come next, and what the present choice has changed."""

    candidates: Iterator[int]
    undo: Undo | None = None


def solve(field: Field, budget: Budget, offset: int = -1, rank: int = -1) -> Ints | None:
    """Offsets for what is not yet placed in the field, all after (offset, rank); None if there are none.

    Depth first on a list of its own, since a step may have more requests than Python has stack. Recursion is
    only into fields of at most half the requests.
    """
    offsets = np.zeros(len(field.table), field.table.size.dtype)
    frames = [_Frame(field.candidates(offset, rank))]
    while frames:
        frame = frames[-1]
        if frame.undo is not None:
            field.take_back(frame.undo)
            frame.undo = None
        i = next(frame.candidates, None)
        if i is None:
            frames.pop()
            continue
        budget.spend()
        frame.undo = undo = field.place(i)
        offsets[i] = undo.offset
        if not field.possible(undo) or not _split(field, undo, budget, offsets):
            continue
        if not field.alive:
            return offsets
        frames.append(_Frame(field.candidates(undo.offset, i)))
    return None


def _split(field: Field, undo: Undo, budget: Budget, offsets: Ints) -> bool:
    """Solve the smaller components that the field has fallen into, each for itself; False if one cannot be.

    The largest stays in the field, unless so little is left of this that a smaller one is worth making.
    """
    components = sorted(field.components(undo.request), key=len)
    if 2 * len(components[-1]) > len(field.table) or len(field.table) <= SMALL:
        components.pop()
    for component in components:
        members = np.sort(component)
        rank = int(members.searchsorted(undo.request))  # how many have a rank below the request's
        if len(members) == 1:  # rests where it is, if its turn is still to come
            least = int(field.least[members[0]])
            solution = np.array([least]) if (least, -rank) >= (undo.offset, 0) else None
        else:
            solution = solve(field.component(members), budget, undo.offset, rank - 1)
        if solution is None:
            return False
        offsets[members] = solution
        for member in members.tolist():
            field.settle(member, undo)
    return True
