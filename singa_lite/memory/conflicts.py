"""Placement by given conflicts, pairs of requests that must not share bytes, where lifespans cannot say it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from math import inf

import numpy as np

from .greedy import greedy
from .problem import PlanError
from .table import Indices, Ints, Table

SEEDS = 16  # cliques grown for the floor


class ConflictGraph:
    """Which requests of a table must not share bytes: a pair counts both ways, even if it is named only once.

    conflicts: for each request that the table was made of, the indices of those that may be alive with it.
    PlanError if there are not as many as `count`, or if an index is none of theirs.
    """

    def __init__(self, table: Table, conflicts: Sequence[Collection[int]], count: int) -> None:
        if len(conflicts) != count:
            raise PlanError(f"wanted conflicts for each of {count} requests, received {len(conflicts)}")
        self.table = table
        left = np.repeat(np.arange(count), [len(others) for others in conflicts])
        right = np.array([other for others in conflicts for other in others], np.int64)
        if len(right) and not 0 <= right.min() <= right.max() < count:
            raise PlanError(f"wanted conflicts with requests 0 to {count - 1}, received {right.min()}, {right.max()}")
        self.neighbors = self._split(np.concatenate([left, right]), np.concatenate([right, left]), count)
        self.degree = np.array([len(others) for others in self.neighbors], np.int64)

    def _split(self, left: Indices, right: Indices, count: int) -> list[Indices]:
        """Neighbors by request of the table, without repetition, and without those that it left out."""
        index = np.full(count, -1)
        index[self.table.rows] = np.arange(len(self.table))
        left, right = index[left], index[right]
        kept = (left >= 0) & (right >= 0) & (left != right)
        size = max(len(self.table), 1)
        pairs = np.unique(left[kept] * size + right[kept])
        return np.split(pairs % size, np.searchsorted(pairs // size, np.arange(1, len(self.table))))

    def floor(self) -> int:
        """Bytes that a clique, requests that all conflict with each other, needs; the most of some cliques.

        One is grown from those alive at the step of the largest load, others from the largest requests.
        """
        table = self.table
        if not len(table):
            return 0
        peak = int(table.load.argmax())
        alive = (table.first <= peak) & (table.stop > peak)
        by_size = np.argsort(-table.size, kind="stable")
        starts = [by_size[np.argsort(~alive[by_size], kind="stable")]]
        starts += [np.concatenate([[seed], by_size]) for seed in by_size[:SEEDS]]
        return max(table.stacked(self._clique(order)) for order in starts)

    def _clique(self, order: Indices) -> Indices:
        """The requests taken in this order that conflict with all taken before."""
        common = np.ones(len(self.table), bool)
        members = []
        for i in order.tolist():
            if common[i]:
                members.append(i)
                beside = np.zeros_like(common)
                beside[self.neighbors[i]] = True
                common &= beside
        return np.array(members)

    def place(self, enough: int, deadline: float = inf) -> tuple[str, Ints]:
        """The name of the best greedy order and its offsets, in units, as `greedy` has it."""
        return greedy(self.table, enough, deadline, partial(_Layout, self), self.degree)


class _Layout:
    """Surroundings by given conflicts."""

    def __init__(self, graph: ConflictGraph) -> None:
        self._neighbors = graph.neighbors
        self._size = graph.table.size.tolist()
        self._offsets = np.full_like(graph.table.size, -1)
        self._tops = self._offsets.copy()

    def around(self, i: int) -> tuple[Ints, Ints]:
        """Offsets and tops of the placed neighbors of request i, by ascending offset."""
        near = self._neighbors[i]
        near = near[self._offsets[near] >= 0]
        near = near[self._offsets[near].argsort(kind="stable")]
        return self._offsets[near], self._tops[near]

    def put(self, i: int, offset: int) -> None:
        """Enter request i at this offset."""
        self._offsets[i], self._tops[i] = offset, offset + self._size[i]
