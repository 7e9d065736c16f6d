"""The search for what to drop and make again, so that a program stays within so many bytes for the least extra time.

The live bytes of a step that trains are a hill: they rise while the forward part runs and fall with the backward part.
To drop a value lowers the hill between its last use in the forward part and the first one behind; to make it again
costs what the chain of instructions back to values that are there costs. In four parts (`descent.py`):

- *Greedy*: of the best values to drop, or to keep for shorter, the one that takes most of the bytes above the limit a
  second, by trial; and so on until the limit holds. Begun with few and with many trials a turn, and from even cuts.
- *Cheapened* (`cheapen.py`): where that ends above the limit, a choice of a low floor goes towards where it ended.
- *Taken back*: values are kept after all where the limit holds without.
- *Exchanged*: each of the costliest values is kept for once, and what is cheaper dropped in its place.

All is bounded by numbers of trials and not by time, so a plan does not depend on how fast the machine is. In programs
that are small enough a limit also gets what the next of a ladder of fixed rungs got, so that more bytes take no more
time. Chen and others, "Training deep nets with sublinear memory cost" (arXiv 1604.06174), cut evenly; Kusumoto and
others, "A graph theoretic framework of recomputation algorithms" (2019), and Checkmate (Jain and others, 2020) choose
by values, exactly or nearly so, in minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from singa_lite.passes.carry import Chosen
from singa_lite.passes.cheapen import held_otherwise, towards
from singa_lite.passes.descent import Choice, Descent
from singa_lite.passes.in_place import in_place
from singa_lite.passes.large import Large, by_floor, evenly
from singa_lite.passes.program import Program, floor
from singa_lite.passes.repeats import PER_CHAIN, PER_READER, Repeater
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
#: By which the lowest floor is sought, and below which no limit is kept where the least is named.
STEP_DOWN, NAMED = 0.98, 0.97
#: Times the lowest floor that is reached from nothing dropped, below which a limit gets what the least is, if that is
#: cheaper.
NEAR = 1.05
#: Greedy attempts that end above a limit, after which no other is made.
ATTEMPTS = 2
#: Trials of a turn: how many of the best to drop, to keep for a chain alone, and for a reader alone.
WIDTHS = ((1, 1, 1), (3, 1, 1), (12, 6, 3))
#: Turns that go on from levels of another size of the batch.
REPAIRS = 40


class Searches:
    """The searches of a program and its rivals, which are asked for several limits, kept meanwhile.

    Any other program gets its own. program: the one, whatever its limit is.
    """

    def __init__(self, program: Program) -> None:
        self._programs = (program, *program.rivals)
        self._kept: dict[int, Search] = {}
        #: What the last limit was kept by; None where nothing had to be dropped.
        self.chosen: Chosen | None = None
        #: What the program is without a limit; None until `paid_for` was asked.
        self.free: Program | None = None

    def of(self, program: Program) -> Search:
        """The search of a program, kept if it has the same instructions."""
        for number, one in enumerate(self._programs):
            if one.instructions is program.instructions:
                if number not in self._kept:
                    self._kept[number] = Search(one, one.target.cost)
                return self._kept[number]
        return Search(program, program.target.cost)


def within_limit(program: Program, searches: Searches | None = None) -> Program:
    """The program with so many repeats that its live bytes stay within the target's limit, or as near as was found.

    Or one of its rivals, if that takes less time: values in one block, as concatenations in place leave them, can only
    be dropped together.
    """
    limit, alone = program.target.limit, replace(program, rivals=()) if program.rivals else program
    searches = searches or Searches(program)
    searches.chosen = None
    if limit is None or floor(in_place(alone)) <= limit:
        return alone
    found = list(_found(program, searches, limit))
    fitting = [entry for entry in found if entry[0].floor <= limit]
    if fitting:
        choice, _, search = min(fitting, key=lambda entry: entry[0].seconds + total_seconds(entry[1]))
    else:
        choice, _, search = min(found, key=lambda entry: entry[0].floor)
    searches.chosen = Chosen(search.base, choice.levels)
    return replace(search.program(choice.levels), target=program.target, rivals=(), free=program.free)


def _found(program: Program, searches: Searches, limit: int) -> Iterator[tuple[Choice, Program, Search]]:
    """What is found for one form of the program after the other, up to one that is no better than that before it.

    Rivals stand in the order of what they have in common with the program. The last one is asked in any case where
    nothing fits yet, or there is time for it.
    """
    forms, before = [program, *program.rivals], (True, float("inf"))
    while forms:
        one = forms.pop(0)
        search = searches.of(one)
        choice = search.within(limit)
        yield choice, one, search
        fits = choice.floor <= limit
        now = not fits, choice.seconds + total_seconds(one) if fits else choice.floor
        before, is_better = min(now, before), now < before
        if not is_better:
            forms = forms[-1:] if search.is_small or before[0] else []


def total_seconds(program: Program) -> float:
    """Of all its calls."""
    return sum(map(program.target.cost, program.instructions))


def _by_time(choice: Choice) -> tuple[float, int]:
    return choice.seconds, choice.floor


class Search:
    """One program's search, for any limits. What a limit gives does not depend on those that were asked before."""

    def __init__(self, program: Program, cost: Cost = seconds) -> None:
        self.base = program
        self._repeater = Repeater(program)
        self._descent = Descent(self._repeater, cost)
        self._large = Large(self._repeater, self._descent) if self._descent.at_once > 1 else None
        self._found: dict[int, Choice | None] = {}
        self._lows: list[Choice] = []
        self.free = self._descent.choice()
        #: Whether there is time to look at more limits and forms than the one.
        self.is_small = len(self._repeater.candidates) <= MOST_WITH_RUNGS

    def within(self, limit: int) -> Choice:
        """The cheapest choice whose live bytes are at most `limit`; where none was found, `least`."""
        if self.free.floor <= limit:
            return self.free
        rung = self._rung_within(limit)
        rungs = range(rung, rung + (RUNGS if self.is_small else 0))
        found = [self._solved(limit), *(self._solved(self._bytes_of(one)) for one in rungs)]
        if self._is_near_the_least(limit):
            found.append(self.least)
        fitting = [choice for choice in found if choice is not None and choice.floor <= limit]
        if not fitting:
            return self.least
        if self._large is not None:
            return fitting[0]
        self._descent.begin(min(fitting, key=_by_time).levels)
        self._descent.take_back(limit)
        return self._descent.choice()

    def _is_near_the_least(self, limit: int) -> bool:
        """Whether the least may be cheaper than what is found for a limit: it is sought harder."""
        return self._descent.at_once == 1 and limit < NEAR * min(self._lowest(), key=by_floor).floor

    @cached_property
    def least(self) -> Choice:
        """The choice of the lowest floor that small steps reach, or of a cheaper one within it."""
        if self._large is not None:
            return self._large.lowest
        best = min(self._lowest(), key=by_floor)
        cheaper = self._solved(best.floor)
        while (lower := self._solved(int(NAMED * best.floor))) is not None:
            best = cheaper = lower
        return min(best, cheaper or best, key=_by_time)

    def _lowest(self) -> Iterator[Choice]:
        """Choices of low floors, each from another start; what they cost is not asked. Each is sought once."""
        candidates = self._repeater.candidates
        cut = min(self._cuts, key=by_floor, default=self.free).levels
        starts = [{}, *(dict.fromkeys(candidates, level) for level in (PER_READER, PER_CHAIN)), cut]
        for at, start in enumerate(starts):
            if at == len(self._lows):
                self._lows.append(self._lowest_from(start, WIDTHS[0]))
            yield self._lows[at]

    def _lowest_from(self, start: Mapping[int, int], widths: Sequence[int]) -> Choice:
        self._descent.begin(start)
        best = self._descent.choice()
        while best.floor and self._descent.lower(int(best.floor * STEP_DOWN), widths):
            best = self._descent.choice()
        return best

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
        if self._large is not None:
            return self._large.within(limit)
        found, fits = list[Choice](), [cut for cut in self._cuts if cut.floor <= limit]
        missed: list[Choice] = []
        for widths in WIDTHS:
            if len(missed) == ATTEMPTS:
                break
            self._descent.begin({})
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
        self._descent.exchange(limit)
        return self._descent.choice()

    def _cheapened(self, limit: int, missed: Sequence[Choice]) -> Iterator[Choice]:
        """From a choice of a low floor towards each of those that missed the limit."""
        start = next((lowest for lowest in self._lowest() if lowest.floor <= limit), None)
        if start is None:
            return
        for choice in missed:
            self._descent.begin(start.levels)
            towards(self._descent, choice.levels, limit)
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
