"""The search for what to drop and make again, so that a program stays within so many bytes for the least extra time.

The live bytes of a step that trains are a hill: they rise while the forward part runs and fall with the backward part.
To drop a value lowers the hill between its last use in the forward part and the first one behind; to make it again
costs what the chain of instructions back to values that are there costs. In three parts:

- *Greedy*: of the best values to drop, or to keep for shorter, the one that takes most of the bytes above the limit a
  second, by trial; and so on until the limit holds. Begun with few and with many trials a turn, and from even cuts.
- *Taken back*: values are kept after all where the limit holds without.
- *Exchanged*: each of the costliest values is kept for once, and what is cheaper dropped in its place.

All is bounded by numbers of trials and not by time, so a plan does not depend on how fast the machine is. Limits are
those of a ladder of fixed rungs: a budget gets the best of the rungs next below it, so that more bytes take no more
time. Chen and others, "Training deep nets with sublinear memory cost" (arXiv 1604.06174), cut evenly; Kusumoto and
others, "A graph theoretic framework of recomputation algorithms" (2019), and Checkmate (Jain and others, 2020) choose
by values, exactly or nearly so, in minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from singa_lite.passes.in_place import in_place
from singa_lite.passes.program import Program, floor
from singa_lite.passes.ranking import Ranking
from singa_lite.passes.repeats import KEPT, ONCE, PER_CHAIN, PER_READER, SEGMENT, Repeater
from singa_lite.passes.sketch import Mark, Sketch
from singa_lite.passes.time_model import Cost, seconds

#: From one rung of the ladder of limits to the next, and how many rungs below a limit are looked at.
RUNG = 0.97
RUNGS = 1
#: Candidates of a program for which there is time to look at rungs too.
MOST_WITH_RUNGS = 200
#: Even cuts that cost so many times as much as what was found are no start.
WORTH = 4
#: One of so many values is kept by even cuts, in one level, or in two of its square and itself.
CUTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
#: In large programs, the share of the free floor below which cuts beat what else there is time for.
CUTS_WIN = 0.2
#: By which the lowest floor is sought.
STEP_DOWN = 0.98
#: Trials of a turn: how many of the best to drop, to keep for a chain alone, and for a reader alone.
WIDTHS = ((1, 1, 1), (3, 1, 1), (12, 6, 3))
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

#: All levels.
EVERY = (KEPT, ONCE, PER_CHAIN, PER_READER, SEGMENT)

Levels = dict[int, int]


class Choice(NamedTuple):
    """What is dropped, and what comes of it: the seconds of all repeats, and the largest of the live bytes."""

    seconds: float
    floor: int
    levels: Levels


class Searches:
    """The search of a program that is asked for several limits, kept meanwhile; any other program gets its own.

    program: the one, whatever its limit is.
    """

    def __init__(self, program: Program) -> None:
        self._program = program

    def of(self, program: Program) -> Search:
        """The search of a program, kept if it has the same instructions."""
        return self._kept if program.instructions is self._program.instructions else _search(program)

    @cached_property
    def _kept(self) -> Search:
        return _search(self._program)


def within_limit(program: Program, searches: Searches | None = None) -> Program:
    """The program with so many repeats that its live bytes stay within the target's limit, or as near as was found."""
    limit = program.target.limit
    if limit is None or floor(in_place(program)) <= limit:
        return program
    search = (searches or Searches(program)).of(program)
    return replace(search.program(search.within(limit).levels), target=program.target)


def _search(program: Program) -> Search:
    return Search(program, program.target.cost)


def _by_time(choice: Choice) -> tuple[float, int]:
    return choice.seconds, choice.floor


def _by_floor(choice: Choice) -> tuple[int, float]:
    return choice.floor, choice.seconds


class Search:
    """One program's search, for any limits. What a limit gives does not depend on those that were asked before."""

    def __init__(self, program: Program, cost: Cost = seconds) -> None:
        self._repeater = Repeater(program)
        costs = {step: round(SECOND * cost(i)) for step, i in self._repeater.repeats.items()}
        self._sketch = Sketch(self._repeater, costs)
        self._ranking = Ranking(self._sketch)
        self._at_once = 1 + len(self._repeater.candidates) // CANDIDATES_AT_ONCE
        self._rungs: dict[int, Choice | None] = {}
        self.free = self._choice()

    def within(self, limit: int) -> Choice:
        """The cheapest choice whose live bytes are at most `limit`; where none was found, `least`."""
        if self.free.floor <= limit:
            return self.free
        rung = 0
        while (nbytes := int(self.free.floor * RUNG**rung)) > limit and nbytes > 0:
            rung += 1
        rungs = range(rung, rung + (RUNGS if len(self._repeater.candidates) <= MOST_WITH_RUNGS else 0))
        found = [self._solved(limit), *(self._rung(one) for one in rungs)]
        fitting = [choice for choice in found if choice is not None]
        if not fitting:
            return self.least
        self._begin(min(fitting, key=_by_time).levels)
        self._take_back(limit)
        return self._choice()

    @cached_property
    def least(self) -> Choice:
        """The choice of the lowest floor that small steps reach, or of a cheaper one within it."""
        cut = min(self._cuts, key=_by_floor, default=self.free)
        found = [self._lowest_from(cut.levels, WIDTHS[0])]
        if self._at_once == 1:
            every = (dict.fromkeys(self._repeater.candidates, level) for level in (PER_CHAIN, PER_READER))
            found += [self._lowest_from(start, WIDTHS[0]) for start in ({}, *every)]
        best = min(found, key=_by_floor)
        self._begin(best.levels)
        self._take_back(best.floor)
        lowest = self._choice()
        cheaper = self._solved(lowest.floor) if self._at_once == 1 else None
        return min(lowest, cheaper or lowest, key=_by_time)

    def _lowest_from(self, start: Mapping[int, int], widths: Sequence[int]) -> Choice:
        self._begin(start)
        best = self._choice()
        while best.floor and self._lower(int(best.floor * STEP_DOWN), widths, cuts=False):
            best = self._choice()
        return best

    def program(self, levels: Mapping[int, int]) -> Program:
        """The program that drops these."""
        self._begin(levels)
        return self._sketch.schedule.program()

    # ---- one limit

    def _rung(self, rung: int) -> Choice | None:
        if rung not in self._rungs:
            self._rungs[rung] = self._solved(int(self.free.floor * RUNG**rung))
        return self._rungs[rung]

    def _solved(self, limit: int) -> Choice | None:
        """The cheapest choice found within a limit, from several starts; None where none was found."""
        found, fits = list[Choice](), [cut for cut in self._cuts if cut.floor <= limit]
        for widths in self._widths(limit, bool(fits)):
            self._begin({})
            if self._lower(limit, widths, cuts=widths == WIDTHS[-1]):
                self._take_back(limit)
                found.append(self._choice())
        for cut in fits[:2]:
            if not found or cut.seconds < WORTH * min(found, key=_by_time).seconds:
                self._begin(cut.levels)
                self._take_back(limit)
                found.append(self._choice())
        if not found:
            return None
        self._begin(min(found, key=_by_time).levels)
        self._exchange(limit)
        return self._choice()

    def _widths(self, limit: int, has_cuts: bool) -> Sequence[Sequence[int]]:
        """Trials of a turn of each greedy attempt; fewer in large programs, none where even cuts win there."""
        if self._at_once == 1:
            return WIDTHS
        return () if has_cuts and limit < CUTS_WIN * self.free.floor else WIDTHS[:1]

    @cached_property
    def _cuts(self) -> list[Choice]:
        """Even cuts through the program, the cheapest first: all but every so many values are dropped."""
        blocks = sorted(self._repeater.candidates, key=lambda block: self._repeater.writers[block][0])
        cuts = [dict(self._cut(blocks, every, every)) for every in CUTS if every * every <= 4 * len(blocks)]
        cuts += [dict(self._cut(blocks, every * every, every)) for every in CUTS if every**4 <= 4 * len(blocks) ** 2]
        found = []
        for levels in cuts:
            self._begin(levels)
            found.append(self._choice())
        return sorted(found, key=_by_time)

    def _cut(self, blocks: Sequence[int], outer: int, inner: int) -> Iterator[tuple[int, int]]:
        """Every outer one is kept, every inner one kept from when it is first made again, in two levels."""
        for at, block in enumerate(blocks):
            if at % outer:
                yield block, SEGMENT if at % inner or outer == inner else ONCE

    def _choice(self) -> Choice:
        return Choice(self._sketch.cost / SECOND, self._sketch.floor, dict(self._sketch.levels))

    def _begin(self, levels: Mapping[int, int]) -> None:
        """Drop these and nothing else; where one of them could not be made again, that is kept."""
        now = self._sketch.levels
        self._tried({block: KEPT for block in now if block not in levels})
        self._drop([(block, level) for block, level in levels.items() if now.get(block) != level])

    def _drop(self, levels: Sequence[tuple[int, int]]) -> None:
        if levels and self._tried(dict(levels)) is None and len(levels) > 1:
            middle = len(levels) // 2
            self._drop(levels[:middle])
            self._drop(levels[middle:])

    def _tried(self, levels: Mapping[int, int]) -> Mark | None:
        """Set levels; how to go back. None where a block could not be made again: nothing is changed then."""
        mark = self._sketch.mark()
        if self._sketch.change(levels):
            return mark
        self._sketch.back_to(mark)
        return None

    # ---- down to a limit

    def _lower(
        self,
        limit: int,
        widths: Sequence[int],
        but: int = -1,
        bound: int | None = None,
        turns: int = -1,
        cuts: bool = True,
    ) -> bool:
        """Drop values until the limit holds; whether it does. but: not this one; bound: of the cost; turns: at most.

        cuts: whether to cut long chains where nothing more can be dropped, if the cost is not bounded.
        """
        sketch, strikes = self._sketch, dict[tuple[int, int], int]()
        turns = turns if turns >= 0 else MOST_TURNS * len(self._repeater.candidates) // self._at_once
        while sketch.floor > limit:
            groups = list(self._groups(limit, widths, {but}, strikes))
            if turns == 0:
                return False
            turns -= 1
            best = self._best_of(groups, limit, bound, strikes)
            if not groups and bound is None and cuts:
                best = self._best_of(self._otherwise(limit), limit, bound, {})
            if best is not None:
                self._tried(best)
            elif bound is not None or not groups:
                return False
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
                group = ranked[at * self._at_once : (at + 1) * self._at_once]
                groups += [dict.fromkeys(group, level)] if group else []
        return groups

    def _otherwise(self, limit: int) -> list[Levels]:
        """What is left to try where nothing more can be dropped: dropped values are held otherwise, or kept.

        To make a long chain again takes many bytes at once, and a value of it that is kept cuts it.
        """
        now, inserts = self._sketch.levels, self._sketch.schedule.inserts
        steps: list[int] = self._sketch.over(limit).nonzero()[0].tolist() if self._at_once == 1 else []
        repeats = {one for step in steps if step in inserts for one in inserts[step].repeats}
        blocks = sorted({block for one in repeats for block in self._repeater.written[one] if block in now})
        return [{block: level} for block in blocks for level in EVERY if level != now[block]]

    def _best_of(
        self, groups: Sequence[Levels], limit: int, bound: int | None, strikes: dict[tuple[int, int], int]
    ) -> Levels | None:
        """The group that takes most of the excess a second; None where none takes any within the bound of the cost."""
        sketch, best, most = self._sketch, None, 0.0
        excess, cost = sketch.excess(limit), sketch.cost
        for group in groups:
            mark = self._tried(group)
            gain = excess - sketch.excess(limit) if mark is not None else 0
            if mark is not None:
                score = gain / max(sketch.cost - cost, 1)
                if score > most and (bound is None or sketch.cost < bound):
                    best, most = group, score
                sketch.back_to(mark)
            if gain <= 0:
                for one in group.items():
                    strikes[one] = strikes.get(one, 0) + (STRIKES if mark is None and len(group) == 1 else 1)
        return best

    # ---- within a limit

    def _take_back(self, limit: int) -> None:
        """Values are kept after all where the limit holds without, costliest first, in groups that halve."""
        blocks = self._ranking.by_cost()
        size = max(1, len(blocks) // 4)
        while blocks:
            failed: list[int] = []
            for start in range(0, len(blocks), size):
                group = blocks[start : start + size]
                if not self._cheaper(dict.fromkeys(group, KEPT), limit):
                    failed += group
            if size == 1:
                return
            blocks, size = failed, max(1, size // 2)

    def _cheaper(self, levels: Mapping[int, int], limit: int) -> bool:
        """Set levels, if the limit holds then and the cost is lower; whether it is so."""
        sketch, cost = self._sketch, self._sketch.cost
        mark = self._tried(levels)
        if mark is None:
            return False
        if sketch.floor <= limit and sketch.cost < cost:
            return True
        sketch.back_to(mark)
        return False

    def _exchange(self, limit: int) -> None:
        """The costliest values are held otherwise, or kept and others dropped in their place, if that is cheaper."""
        for block in self._ranking.by_cost()[: EXCHANGED if self._at_once == 1 else 0]:
            for level in (ONCE, PER_CHAIN, PER_READER, KEPT):
                if self._sketch.levels.get(block, KEPT) not in (KEPT, level):
                    self._cheaper({block: level}, limit)
            if block in self._sketch.levels:
                self._exchange_one(block, limit)

    def _exchange_one(self, block: int, limit: int) -> None:
        before, cost = dict(self._sketch.levels), self._sketch.cost
        if self._tried({block: KEPT}) is None:
            return
        if self._lower(limit, (8, 3, 1), block, cost, TURNS):
            self._take_back(limit)
        if self._sketch.floor > limit or self._sketch.cost >= cost:
            self._begin(before)
