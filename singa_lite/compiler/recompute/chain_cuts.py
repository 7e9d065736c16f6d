"""Cuts of a chain of stages, by dynamic programming: which values are kept, and from when on, for the least time.

To go back through the stages behind value i up to value j within so many bytes, either all of them are made and kept,
or some value q between is made and kept; then all behind q is gone back through with what is left, and then all between
i and q, with all of it again:

    cost(i, j, m) = min(make(i .. j) if that fits,
                        min over q: make(i .. q) + cost(q, j, m - bytes of q) + cost(i, q, m))

For equal stages Griewank and Walther, "Algorithm 799: revolve" (ACM TOMS 2000), give the optimum; this is that of
Beaumont and others, "Optimal checkpointing for heterogeneous chains" (arXiv 1911.13214), for values that stay until
they were used. In chains of more than `MOST` stages groups of them stand for one, and what lies between two cuts is
solved again by itself, by smaller groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import inf
from typing import NamedTuple

import numpy as np

from singa_lite.compiler.recompute.stages import Stage

#: Groups of stages that are solved at once, and units into which a limit's bytes are parted, about.
MOST, UNITS = 160, 240
#: How often a group may be made that does not fit as a whole, before it is solved by itself.
TIMES = (2, 3, 4, 6)
#: Cuts that make all values more often than so many times are none, so that the search for the least comes to an end.
MOST_TIMES = 7


class Piece(NamedTuple):
    """Links from `start` to `stop`, exclusive, all of whose values but the last end are kept at one depth.

    left: bytes there are for them. is_whole: whether they fit into these; else they are to be cut further.
    """

    start: int
    stop: int
    depth: int
    left: int
    is_whole: bool


def cuts(chain: Sequence[Stage], limit: int) -> dict[int, int] | None:
    """{value: depth}, of all values but those that are kept from the first; None where the limit cannot be kept.

    A value of depth n is kept when it is made for the (n + 1)-th time, counting the forward part.
    """
    found: dict[int, int] = {}
    if not chain or not _solve(chain, limit, 0, found):
        return None
    return {block: depth for block, depth in found.items() if depth}


def _solve(chain: Sequence[Stage], limit: int, depth: int, found: dict[int, int]) -> bool:
    """Put the depths of all values but the last ends; whether the limit can be kept."""
    groups = _groups(chain)
    table = Table([Stage.joined(chain[start:stop]) for start, stop in groups], limit)
    if not table.fits:
        return False
    for piece in table.pieces(is_fine=len(groups) == len(chain)):
        stages = chain[groups[piece.start][0] : groups[piece.stop - 1][1]]
        deeper = depth + piece.depth
        if piece.stop < len(groups):
            _set_depths(found, stages[-1].ends, deeper - 1)
        if piece.is_whole:
            _set_depths(found, Stage.joined(stages).inside, deeper)
        elif len(stages) == len(chain) or not _solve(stages, piece.left, deeper, found):
            return False
    return True


def _set_depths(found: dict[int, int], blocks: Sequence[int], depth: int) -> None:
    """What goes on at several cuts is kept as soon as for the first of them."""
    found.update((block, min(depth, found.get(block, depth))) for block in blocks)


def _groups(chain: Sequence[Stage]) -> list[tuple[int, int]]:
    """From stage to stage: each by itself, or about `MOST` groups, which end with the smallest value near by."""
    if len(chain) <= MOST:
        return [(at, at + 1) for at in range(len(chain))]
    sizes = list(accumulate(stage.size + stage.inner for stage in chain))
    costs = list(accumulate(stage.cost for stage in chain))
    weights = [size / max(sizes[-1], 1) + cost / max(costs[-1], 1) for size, cost in zip(sizes, costs, strict=True)]
    numbers = [min(int(weight * MOST / 2), MOST - 1) for weight in weights]
    stops = [at + 1 for at in range(len(chain) - 1) if numbers[at] != numbers[at + 1]]
    near = [range(max(stop - 1, 1), min(stop + 2, len(chain))) for stop in stops]
    ends = sorted(
        {
            min(places, key=lambda at: (chain[at - 1].cut, abs(at - stop)))
            for places, stop in zip(near, stops, strict=True)
        }
    )
    return list(pairwise([0, *ends, len(chain)]))


class Table:
    """The least costs of all pieces of a chain, for all numbers of units up to a limit.

    costs[n][i, m]: of the n links from the i-th on within m units, the values before them apart.
    """

    def __init__(self, links: Sequence[Stage], limit: int) -> None:
        self.links, self.limit = links, limit
        self.unit = _unit([link.cut for link in links], limit)
        self.units = int(limit / self.unit)
        self.made = np.array([0, *accumulate(link.cost for link in links)], np.float64)
        self._bytes = np.arange(self.units + 1) * self.unit
        self._slots = [max(1, round(link.cut / self.unit)) if link.cut else 0 for link in links]
        self._sums = np.zeros(len(links), np.int64)
        self._most = np.zeros(len(links), np.int64)
        self.costs: list[np.ndarray] = [np.zeros((0, 0), np.float32)]
        self._first: list[np.ndarray] = [np.zeros((0, 0), np.float32)]
        self._behind: list[np.ndarray] = [np.zeros((0, 0), np.float32)]
        self.whole: list[np.ndarray] = [np.zeros((0, 0), np.float32)]
        for count in range(1, len(links) + 1):
            self._fill(count)

    @property
    def fits(self) -> bool:
        """Whether all links can be gone back through within the limit, in a time that is worth it."""
        return bool(self.costs[-1][0, self.units] <= MOST_TIMES * self.made[-1])

    def _fill(self, count: int) -> None:
        starts = len(self.links) - count + 1
        whole = self._whole_costs(count)
        best = whole.copy()
        if count == 1:
            self._cut_further(best)
        for first in range(1, count):
            tried = self._first[first][:starts] + self._behind[count - first][first : first + starts]
            np.minimum(best, tried, out=best)
        made = (self.made[count:] - self.made[:starts]).astype(np.float32)
        self.whole.append(whole)
        self.costs.append(best)
        self._first.append(best + made[:, None])
        self._behind.append(self._with_start(best))

    def _whole_costs(self, count: int) -> np.ndarray:
        """The costs of what is made at once and kept, where that fits."""
        starts = len(self.links) - count + 1
        last = self.links[count - 1 :]
        before, most = self._sums[:starts], self._most[:starts]
        inner, size, work = np.array([(link.inner, link.size, link.work) for link in last], np.int64).T
        ending = np.where(inner > 0, np.maximum(most, before + inner + size + work), most)
        costs = self.made[count - 1 : -1] - self.made[:starts] + [link.inner_cost if link.inner else 0 for link in last]
        self._sums = before + inner + size
        self._most = np.maximum(most, self._sums + work)
        fits: np.ndarray = np.where(self._bytes >= ending[:, None], costs[:, None], inf)
        return fits.astype(np.float32)

    def _cut_further(self, costs: np.ndarray) -> None:
        """The costs of single links that are several stages, about: they will be solved by themselves."""
        for at, link in enumerate(self.links):
            for times in TIMES if link.number > 1 else ():
                fits = self._bytes >= link.needed_bytes(times)
                costs[at, fits] = np.minimum(costs[at, fits], np.float32(times * link.cost))

    def _with_start(self, costs: np.ndarray) -> np.ndarray:
        """The same costs where the value before the links counts, and must have been gone back through itself."""
        behind = np.full_like(costs, inf)
        for row in range(1, len(costs)):
            link, slots = self.links[row - 1], self._slots[row - 1]
            least = np.searchsorted(self._bytes, link.cut + link.work)
            behind[row, slots:] = costs[row, : max(self.units + 1 - slots, 0)]
            behind[row, :least] = inf
        return behind

    # ---- the way that the least cost was reached

    def pieces(self, is_fine: bool) -> Iterator[Piece]:
        """From the last to the first. is_fine: links are stages, so that all pieces are whole."""
        return self._pieces(0, len(self.links), self.units, self.limit, 0, is_fine)

    def _pieces(self, start: int, stop: int, units: int, left: int, depth: int, is_fine: bool) -> Iterator[Piece]:
        while True:
            count = stop - start
            if self.whole[count][start, units] == self.costs[count][start, units]:
                yield Piece(start, stop, depth, left, True)
                return
            if count == 1:
                yield Piece(start, stop, depth, left, False)
                return
            by_first = [
                self._first[n][start, units] + self._behind[count - n][start + n, units] for n in range(1, count)
            ]
            cut = start + 1 + int(np.argmin(by_first))
            if is_fine:
                yield from self._pieces(start, cut, units, left, depth + 1, True)
            else:
                is_whole = bool(self.whole[cut - start][start, units] == self.costs[cut - start][start, units])
                yield Piece(start, cut, depth + 1, left, is_whole)
            units, left, start = units - self._slots[cut - 1], left - self.links[cut - 1].cut, cut


def _unit(sizes: Sequence[int], limit: int) -> float:
    """Bytes of a unit, so that a limit has about `UNITS`, and a usual value a whole number of them."""
    from statistics import median  # here, as it loads fractions and decimals that `import singa_lite` needs not

    usual, unit = median([size for size in sizes if size] or [1]), max(limit, 1) / UNITS
    return usual / round(usual / unit) if usual >= unit / 2 and round(usual / unit) else unit
