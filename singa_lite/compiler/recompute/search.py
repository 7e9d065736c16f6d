"""Search: one program's, for what to drop and make again so that it stays within so many bytes for least extra time.

The live bytes of a step that trains are a hill: they rise while the forward part runs and fall with the backward part.
To drop a value lowers the hill between its last use in the forward part and the first one behind; to make it again
costs what the chain of instructions back to values that are there costs. In six parts (`local_search.py`):

- *Forced* (`forced.py`): what does not fit beside what is live whatever is dropped, is dropped to begin with.
- *Greedy*: of the best values to drop, or to keep for shorter, the one that takes most of the bytes above the limit a
  second, by trial; and so on until the limit holds. Begun with few and with many trials a turn, and from even cuts.
- *Cheapened* (`cheapen.py`): where that ends above the limit, a choice of a low floor goes towards where it ended.
- *Taken back*: values are kept after all where the limit holds without.
- *By chance* (`chance.py`): levels of a few values at a time are changed at random, with a fixed seed, and stay so
  where that costs less, or, in the beginning, hardly more. It also goes on from the lowest floor to lower ones.
- *Exchanged*: each of the costliest values is kept for once, and what is cheaper dropped in its place.

All is bounded by numbers of trials and not by time, so a plan does not depend on how fast the machine is. In programs
that are small enough a limit also gets what the next of a ladder of fixed rungs got, so that more bytes take no more
time. Chen and others, "Training deep nets with sublinear memory cost" (arXiv 1604.06174), cut evenly; Kusumoto and
others, "A graph theoretic framework of recomputation algorithms" (2019), and Checkmate (Jain and others, 2020) choose
by values, exactly or nearly so, in minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import inf

from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.time_model import Cost, seconds
from singa_lite.compiler.recompute.chance import lowered, made_cheaper
from singa_lite.compiler.recompute.cheapen import approach_levels, held_otherwise
from singa_lite.compiler.recompute.large import Large, by_floor, evenly
from singa_lite.compiler.recompute.local_search import SECOND, Choice, LocalSearch
from singa_lite.compiler.recompute.repeats import PER_CHAIN, PER_READER, Repeater

#: From one rung of the ladder of limits to the next.
RUNG = 0.97
#: Candidates of a program for which there is time to look at rungs too.
MOST_WITH_RUNGS = 200
#: Even cuts that cost so many times as much as what was found are no start.
WORTH = 4
#: One of so many values is kept by even cuts, in one level, or in two of its square and itself.
CUTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
#: By which the lowest floor is sought, and below which no limit is kept where the least is named.
STEP_DOWN, NAMED = 0.98, 0.97
#: Times the lowest floor that is reached, below which a limit gets what the least is, if that is cheaper; and in
#: programs of so few candidates that there is time for it.
NEAR, NEAR_IN_TINY, TINY = 1.1, 1.3, 50
#: Trials of a turn: how many of the best to drop, to keep for a chain alone, and for a reader alone.
WIDTHS = ((1, 1, 1), (3, 1, 1))
#: Turns that go on from levels of another size of the batch.
REPAIRS = 40


def _by_time(choice: Choice) -> tuple[float, int]:
    return choice.seconds, choice.floor


class Search:
    """One program's search, for any limits. What a limit gives does not depend on those that were asked before."""

    def __init__(self, program: Program, cost: Cost = seconds) -> None:
        self.base = program
        self._repeater = Repeater(program)
        self._descent = LocalSearch(self._repeater, cost)
        self._large = Large(self._repeater, self._descent) if self._descent.at_once > 1 else None
        self._found: dict[int, Choice | None] = {}
        self._within: dict[tuple[int, float], list[Choice]] = {}
        self._trails: list[list[Choice]] = []
        self.free = self._descent.choice()
        #: Whether there is time to look at more limits and forms than the one.
        self.is_small = len(self._repeater.candidates) <= MOST_WITH_RUNGS

    def within(self, limit: int) -> Choice:
        """The cheapest choice whose live bytes are at most `limit`; where none was found, `least`."""
        return next(iter(self.all_within(limit)), None) or self.least

    def all_within(self, limit: int, worth: float = inf) -> list[Choice]:
        """Choices whose live bytes are at most `limit`, the cheapest first; those behind it have fewer bytes.

        worth: seconds; where the search for the limit itself finds nothing that costs less, no more is looked for.
        """
        if (limit, worth) not in self._within:
            self._within[limit, worth] = list(self._all_within(limit, worth))
        return self._within[limit, worth]

    def _all_within(self, limit: int, worth: float) -> Sequence[Choice]:
        if self.free.floor <= limit:
            return [self.free]
        if not self.may_keep(limit):
            return []
        rung = self._bytes_of(self._rung_within(limit)) if self.is_small else limit
        own = self._solved(rung) or self._solved(limit)
        found, is_worth_more = [own], own is None or own.seconds < worth
        if is_worth_more and self._is_near_the_least(limit):
            found.append(self.least)
        fitting = sorted((c for c in found if c is not None and c.floor <= limit), key=_by_time)
        if not fitting or self._large is not None:
            return fitting
        self._descent.begin(fitting[0].levels)
        self._descent.take_back(limit)
        best = self._descent.choice()
        return [best, *(choice for choice in fitting if choice.floor < best.floor)]

    def may_keep(self, limit: int) -> bool:
        """Whether the limit is worth a search: no lower than floors that are found at any cost, by little."""
        if limit < self._descent.forced.floor:
            return False
        return self._large is not None or self._comes_down_to(limit / NAMED)

    def least_cost(self, limit: int) -> float:
        """Seconds, below which nothing keeps a limit."""
        return self._descent.forced.cost(limit) / SECOND

    def _is_near_the_least(self, limit: int) -> bool:
        near = NEAR_IN_TINY if len(self._repeater.candidates) <= TINY else NEAR
        return self.is_small and self._comes_down_to(limit) and not self._comes_down_to(limit / near)

    def _comes_down_to(self, nbytes: float) -> bool:
        """Whether floors so low are found, whatever they cost; low ones are sought only where even cuts do not do."""
        found = itertools.chain(self._cuts, (trail[-1] for trail in self._lowered()))
        return any(choice.floor <= nbytes for choice in found)

    @cached_property
    def lowest(self) -> Choice:
        """The lowest floor that small steps reach, whatever it costs."""
        return self.least if self._large is not None else min((t[-1] for t in self._lowered()), key=by_floor)

    @cached_property
    def least(self) -> Choice:
        """The choice of the lowest floor that small steps reach, or of a cheaper one within it."""
        if self._large is not None:
            return self._large.lowest
        best = self.lowest
        cheaper = self._solved(best.floor)
        while (lower := self._solved(int(NAMED * best.floor))) is not None:
            best = cheaper = lower
        return min(best, cheaper or best, key=_by_time)

    def _lowered(self) -> Iterator[list[Choice]]:
        """Choices of ever lower floors, each list from another start; what they cost is not asked."""
        candidates = self._repeater.candidates
        cut = min(self._cuts, key=by_floor, default=self.free).levels
        starts = [{}, *(dict.fromkeys(candidates, level) for level in (PER_READER, PER_CHAIN)), cut]
        for at, start in enumerate(starts):
            if at == len(self._trails):
                self._trails.append(list(self._lowered_from(start, WIDTHS[0])))
            yield self._trails[at]
        if len(self._trails) == len(starts):
            self._descent.begin(min((trail[-1] for trail in self._trails), key=by_floor).levels)
            self._trails.append([self._descent.choice(), *lowered(self._descent)])
        yield self._trails[-1]

    def _lowered_from(self, start: Mapping[int, int], widths: Sequence[int]) -> Iterator[Choice]:
        self._descent.begin(start)
        best = self._descent.choice()
        yield best
        while best.floor and self._descent.lower(int(best.floor * STEP_DOWN), widths):
            best = self._descent.choice()
            yield best

    def program(self, levels: Mapping[int, int]) -> Program:
        """The program that drops these."""
        self._descent.begin(levels)
        return self._descent.sketch.schedule.program()

    def from_levels(self, levels: Mapping[int, int], limit: int, thrifty: bool = True) -> Choice | None:
        """The choice within a limit that few moves lead to from these levels; None where they do not reach it.

        thrifty: take back what is needless; else the cost is of no interest.
        """
        if self.free.floor <= limit:
            return self.free
        self._descent.begin({block: level for block, level in levels.items() if block in self._repeater.candidates})
        if not self._descent.lower(limit, WIDTHS[0], turns=REPAIRS):
            return None
        if thrifty:
            self._descent.take_back(limit)
        return self._descent.choice()

    def rung(self, limit: int) -> int:
        """The next limit of the ladder, not above this one, which takes half the time; if rungs are looked at."""
        return self._bytes_of(self._rung_within(limit)) if self.is_small else limit

    def _rung_within(self, limit: int) -> int:
        rung = 0
        while (nbytes := self._bytes_of(rung)) > limit and nbytes > 0:
            rung += 1
        return rung

    def _bytes_of(self, rung: int) -> int:
        return int(self.free.floor * RUNG**rung) // self.base.target.alignment * self.base.target.alignment

    def _solved(self, limit: int) -> Choice | None:
        """The cheapest choice found within a limit, from several starts; None where none was found."""
        if limit not in self._found:
            self._found[limit] = self._solve(limit)
        return self._found[limit]

    def _solve(self, limit: int) -> Choice | None:
        if limit < self._descent.forced.floor:
            return None
        if self._large is not None:
            return self._large.within(limit)
        found, fits = list[Choice](), [cut for cut in self._cuts if cut.floor <= limit]
        missed: list[Choice] = []
        for widths in WIDTHS:
            self._descent.begin(self._descent.must_drop(limit))
            if self._descent.lower(limit, widths):
                self._descent.take_back(limit)
                found.append(self._descent.choice())
            else:
                missed.append(self._descent.choice())
        if not found:
            found += self._cheapened(limit, missed)
        for cut in fits[:2]:
            if not found or cut.seconds < WORTH * min(found, key=_by_time).seconds:
                self._descent.begin(cut.levels)
                self._descent.take_back(limit)
                found.append(self._descent.choice())
        if not found:
            return None
        self._descent.begin(min(found, key=_by_time).levels)
        made_cheaper(self._descent, limit)
        self._descent.exchange(limit)
        return self._descent.choice()

    def _cheapened(self, limit: int, missed: Sequence[Choice]) -> Iterator[Choice]:
        """From the cheapest choice on the way to a low floor, and from the lowest, towards each that missed it."""
        low = next((trail for trail in self._lowered() if trail[-1].floor <= limit), None)
        if low is None:
            return
        starts, found = (min((c for c in low if c.floor <= limit), key=_by_time), low[-1]), list[Choice]()
        for start, choice in itertools.product(starts, missed):
            self._descent.begin(start.levels)
            approach_levels(self._descent, choice.levels, limit)
            found.append(self._descent.choice())
        self._descent.begin(min(found, key=_by_time).levels)
        held_otherwise(self._descent, limit)
        yield self._descent.choice()

    @cached_property
    def _cuts(self) -> list[Choice]:
        """Even cuts through the program, the cheapest first: all but every so many values are dropped."""
        blocks = sorted(self._repeater.candidates, key=lambda block: self._repeater.writers[block][0])
        cuts = [dict(evenly(blocks, every, every)) for every in CUTS if every * every <= 4 * len(blocks)]
        cuts += [dict(evenly(blocks, every * every, every)) for every in CUTS if every**4 <= 4 * len(blocks) ** 2]
        found = []
        for levels in cuts:
            self._descent.begin(levels)
            found.append(self._descent.choice())
        return sorted(found, key=_by_time)
