"""Requests as arrays for the planner: lifespans in sections instead of steps, sizes in units instead of bytes.

A *section* is a longest run of steps in which nothing starts after something has ended; the requests alive at
some time in it are all alive at one. Two requests are alive together exactly if they share a section, so
sections stand for steps, and there are no more of them than requests (MiniMalloc's sweep, Moffitt 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from singa_lite.compiler.placement.problem import Request, granule

#: int64; Python's int as objects where sums of sizes could pass 62 bits. Which of the two is known only at run time.
Ints: TypeAlias = NDArray[Any]
Indices: TypeAlias = NDArray[np.int64]
LARGEST = 1 << 60  # sums below it stay far from overflow


@dataclass(frozen=True)
class Table:
    """Requests of at least one byte; all arrays are aligned with them and of shape (n,).

    rows: where the request stands among those that the table was made of.
    first, stop: half-open lifespan in sections. steps: its length in steps.
    size, alignment: in units of `unit` bytes, size rounded up.
    nbytes: the size in bytes.
    """

    rows: Indices
    first: Indices
    stop: Indices
    steps: Ints
    size: Ints
    alignment: Ints
    nbytes: Ints
    unit: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def length(self) -> Indices:
        """Length of each lifespan in sections."""
        return self.stop - self.first

    @property
    def area(self) -> Ints:
        """Sections times units of each request."""
        return self.length * self.size

    @cached_property
    def load(self) -> Ints:
        """Live units by section."""
        changes = np.zeros(int(self.stop.max()) + 1, self.size.dtype)
        np.add.at(changes, self.first, self.size)
        np.subtract.at(changes, self.stop, self.size)
        return np.cumsum(changes)[:-1]

    @cached_property
    def peak(self) -> Ints:
        """The largest load in the lifespan of each request."""
        spans = zip(self.first.tolist(), self.stop.tolist(), strict=True)
        return np.array([self.load[a:b].max() for a, b in spans], self.size.dtype)

    @cached_property
    def conflicts(self) -> Indices:
        """How many requests share a section with each one, itself included."""
        started, ended = np.sort(self.first), np.sort(self.stop)
        return started.searchsorted(self.stop) - ended.searchsorted(self.first, side="right")

    @cached_property
    def aligned(self) -> bool:
        """Whether every offset is good, since all alignments are one unit."""
        return bool((self.alignment == 1).all())

    def limits(self, capacity: int) -> Ints:
        """The largest offset, in units, at which each request ends within `capacity` bytes; below 0 for none."""
        return (capacity - self.nbytes) // self.unit

    def arena(self, offsets: Ints) -> int:
        """Bytes up to the largest end, for offsets in units."""
        return int((offsets * self.unit + self.nbytes).max(initial=0))

    def next_arena(self, nbytes: int) -> int:
        """The smallest arena above so many bytes that offsets in whole units can lead to."""
        return int(nbytes + 1 + ((self.nbytes - nbytes - 1) % self.unit).min())

    def subset(self, chosen: Indices) -> Table:
        """The table of these requests alone, in sections of the same numbers less those before the first."""
        start = self.first[chosen].min()
        return Table(
            self.rows[chosen], self.first[chosen] - start, self.stop[chosen] - start, self.steps[chosen],
            self.size[chosen], self.alignment[chosen], self.nbytes[chosen], self.unit,
        )  # fmt: skip

    def components(self) -> list[Indices]:
        """Indices of the requests, split where no request lives across: those of two components never conflict."""
        order = np.argsort(self.first, kind="stable")
        reach = np.maximum.accumulate(self.stop[order])
        cuts = np.flatnonzero(self.first[order][1:] >= reach[:-1]) + 1
        return [np.sort(component) for component in np.split(order, cuts)] if len(order) else []


def tabulate(requests: Sequence[Request]) -> Table:
    """The table of the requests; those of no bytes are left out."""
    rows = [row for row, request in enumerate(requests) if request.size]
    kept = [requests[row] for row in rows]
    base = granule(kept)
    sizes = [-(-request.size // base) * base for request in kept]
    alignments = [request.alignment for request in kept]
    unit = _unit(sizes, set(alignments))
    dtype: type = np.int64 if sum(sizes) + sum(alignments) < LARGEST else object
    first, stop = _sections(kept)
    return Table(
        np.array(rows, np.int64),
        first,
        stop,
        np.array([request.stop - request.start for request in kept]),
        np.array([size // unit for size in sizes], dtype),
        np.array([max(alignment // unit, 1) for alignment in alignments], dtype),
        np.array([request.size for request in kept], dtype),
        unit,
    )


def _unit(sizes: Sequence[int], alignments: set[int]) -> int:
    """Bytes that divide all offsets of a placement where each request is pushed down onto those below it.

    They divide all sizes, and each alignment, unless the alignment divides them.
    """
    unit, before = gcd(*sizes) or 1, 0
    while unit != before:
        before = unit
        for alignment in alignments:
            if unit % alignment:
                unit = gcd(unit, alignment)
    return unit


def _sections(requests: Sequence[Request]) -> tuple[Indices, Indices]:
    """First section of each request, and the one after its last."""
    starts, stops = [request.start for request in requests], [request.stop for request in requests]
    distinct_starts, distinct_stops = np.unique(starts), np.unique(stops)
    ended = np.searchsorted(distinct_stops, distinct_starts, side="right")  # how many stops come up to each start
    numbers = np.concatenate([[0], np.cumsum(np.diff(ended) > 0)]).astype(np.int64)
    first = numbers[np.searchsorted(distinct_starts, starts)]
    stop = numbers[np.searchsorted(distinct_starts, stops) - 1] + 1
    return first, stop
