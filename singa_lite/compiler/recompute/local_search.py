"""The moves of the search for repeats: down to a limit, values kept again within it, and values exchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from singa_lite.compiler.ir.time_model import Cost
from singa_lite.compiler.recompute.forced import Forced
from singa_lite.compiler.recompute.live_bytes_model import LiveBytesModel, Mark
from singa_lite.compiler.recompute.ranking import Ranking
from singa_lite.compiler.recompute.repeats import KEPT, ONCE, PER_CHAIN, PER_READER, SEGMENT, Repeater

#: Trials that gained nothing, after which a value is left as it is.
STRIKES = 3
#: Values dropped at once: one for every so many candidates.
CANDIDATES_AT_ONCE = 400
#: How many of the costliest values are exchanged, by how many turns each.
EXCHANGED, TURNS = 24, 6
#: Turns of a greedy attempt for each candidate.
MOST_TURNS = 3
#: Rounded costs are whole picoseconds, which sum up to the same in any order.
SECOND = 1e12
#: All levels, the cheapest first: of two ways to hold a value, that which has it there for more of what reads it costs
#: no more.
BY_COST = (KEPT, ONCE, SEGMENT, PER_CHAIN, PER_READER)

Levels = dict[int, int]


class Choice(NamedTuple):
    """A choice of values to drop, the seconds of all its repeats, and its largest sum of live bytes."""

    seconds: float
    floor: int
    levels: Levels


class LocalSearch:
    """One program's repeats as they are chosen now, and moves that change them for the better.

    repeater: what can be dropped; cost: seconds of a call; at_once: how many values a move drops together, more than
    one in large programs alone.
    """

    def __init__(self, repeater: Repeater, cost: Cost) -> None:
        self.repeater = repeater
        self.sketch = LiveBytesModel(repeater, {step: round(SECOND * cost(i)) for step, i in repeater.repeats.items()})
        self._ranking = Ranking(self.sketch)
        self.forced = Forced(self.sketch)
        self._must: tuple[int, Levels] = (-1, {})
        self.at_once = 1 + len(repeater.candidates) // CANDIDATES_AT_ONCE

    def choice(self) -> Choice:
        """What is chosen now."""
        return Choice(self.sketch.cost / SECOND, self.sketch.floor, dict(self.sketch.levels))

    def must_drop(self, limit: int) -> Levels:
        """The values that nothing within a limit keeps, and the cheapest way to hold each."""
        if self._must[0] != limit:
            self._must = limit, self.forced.levels(limit)
        return self._must[1]

    def begin(self, levels: Mapping[int, int]) -> None:
        """Drop these and nothing else; where one of them could not be made again, that is kept."""
        now = self.sketch.levels
        self._tried({block: KEPT for block in now if block not in levels})
        self._drop([(block, level) for block, level in levels.items() if now.get(block) != level])
        self.sketch.settle()

    def _drop(self, levels: Sequence[tuple[int, int]]) -> None:
        if levels and self._tried(dict(levels)) is None and len(levels) > 1:
            middle = len(levels) // 2
            self._drop(levels[:middle])
            self._drop(levels[middle:])

    def _tried(self, levels: Mapping[int, int]) -> Mark | None:
        """Set levels; how to go back. None where a block could not be made again: nothing is changed then."""
        mark = self.sketch.mark()
        if self.sketch.change(levels):
            return mark
        self.sketch.back_to(mark)
        return None

    def lower(
        self, limit: int, widths: Sequence[int], but: int = -1, bound: int | None = None, turns: int = -1
    ) -> bool:
        """Drop values until the limit holds; whether it does. but: not this one; bound: of the cost; turns: at most."""
        sketch, strikes = self.sketch, dict[tuple[int, int], int]()
        turns = turns if turns >= 0 else MOST_TURNS * len(self.repeater.candidates) // self.at_once
        while sketch.floor > limit:
            groups = list(self._groups(limit, widths, {but}, strikes))
            if turns == 0:
                return False
            turns -= 1
            best = self._best_of(groups, limit, bound, strikes)
            if best is not None:
                self._tried(best)
            elif bound is not None or not groups:
                return False
            if but < 0:
                sketch.settle()
        return True

    def _groups(
        self, limit: int, widths: Sequence[int], others: set[int], strikes: Mapping[tuple[int, int], int]
    ) -> list[Levels]:
        """What a turn tries, of each level the best that have not failed too often."""
        groups: list[Levels] = []
        for level, width in zip((ONCE, PER_CHAIN, PER_READER), widths, strict=True):
            out = {block for block, of in strikes if of == level and strikes[block, of] >= STRIKES}
            ranked = self._ranking.best(level, limit, others | out)
            for at in range(width):
                group = ranked[at * self.at_once : (at + 1) * self.at_once]
                groups += [dict.fromkeys(group, level)] if group else []
        return groups

    def _best_of(
        self, groups: Sequence[Levels], limit: int, bound: int | None, strikes: dict[tuple[int, int], int]
    ) -> Levels | None:
        """The group that takes most of the excess a second; None where none takes any within the bound of the cost."""
        sketch, best, most = self.sketch, None, 0.0
        excess, cost, mark = sketch.excess(limit), sketch.cost, sketch.mark()
        for group in groups:
            possible = sketch.change(group) if bound is None else sketch.change_below(group, bound, None)
            gain = excess - sketch.excess(limit) if possible else 0
            if gain > most * max(sketch.cost - cost, 1):
                best, most = group, gain / max(sketch.cost - cost, 1)
            sketch.back_to(mark)
            if gain <= 0:
                for one in group.items():
                    strikes[one] = strikes.get(one, 0) + (STRIKES if not possible and len(group) == 1 else 1)
        return best

    def by_cost(self) -> list[int]:
        """The values that are dropped, the costliest first."""
        return self._ranking.by_cost()

    def take_back(self, limit: int) -> None:
        """Values are kept after all where the limit holds without, costliest first, in groups that halve."""
        must = self.must_drop(limit)
        blocks = [block for block in self.by_cost() if block not in must]
        size = max(1, len(blocks) // 4)
        while blocks:
            failed: list[int] = []
            for start in range(0, len(blocks), size):
                group = blocks[start : start + size]
                if not self.cheaper(dict.fromkeys(group, KEPT), limit):
                    failed += group
            if size == 1:
                return
            blocks, size = failed, max(1, size // 2)

    def cheaper(self, levels: Mapping[int, int], limit: int) -> bool:
        """Set levels, if the limit holds then and the cost is lower; whether it is so."""
        mark = self.sketch.mark()
        if self.sketch.change_below(levels, self.sketch.cost, limit):
            return True
        self.sketch.back_to(mark)
        return False

    def held_cheaper(self, block: int, limit: int) -> None:
        """Hold a value in the cheapest way within the limit, if there is a cheaper one than now."""
        now, least = self.sketch.levels.get(block, KEPT), self.must_drop(limit).get(block, KEPT)
        for level in BY_COST[BY_COST.index(least) : BY_COST.index(min(now, SEGMENT))]:
            if self.cheaper({block: level}, limit):
                return

    def exchange(self, limit: int) -> None:
        """The costliest values are held otherwise, or kept and others dropped in their place, if that is cheaper."""
        for block in self.by_cost()[: EXCHANGED if self.at_once == 1 else 0]:
            self.held_cheaper(block, limit)
            if block in self.sketch.levels and block not in self.must_drop(limit):
                self._exchange_one(block, limit)

    def _exchange_one(self, block: int, limit: int) -> None:
        self.sketch.settle()
        before, cost = self.sketch.mark(), self.sketch.cost
        if self._tried({block: KEPT}) is None:
            return
        if self.lower(limit, (8, 3, 1), block, cost, TURNS):
            self.take_back(limit)
        if self.sketch.floor > limit or self.sketch.cost >= cost:
            self.sketch.back_to(before)
