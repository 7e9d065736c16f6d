"""Search: which values one program drops and computes again, to stay within so many bytes for least extra time.

The live bytes of a step that trains are a hill: they rise while the forward part runs and fall with the backward part.
To drop a value lowers the hill between its last use in the forward part and the first one behind; to compute it again
costs what the chain of instructions back to values that are there costs. In five stages
(`local_search.py`, `annealing.py`), each of which was measured by leaving it out (docs/budget_search.md):

- *Bounds* (`LiveBytesBounds`): values that do not fit whatever else is dropped are dropped first.
- *Greedy*: of the best values to drop, or to keep for shorter, the one that takes most of the bytes above the limit a
  second, by trial; and so on until the limit holds. Then values are kept after all where the limit holds without.
- *Low floors*, where that ends above the limit: from choices of low floors, which greedy steps from several starts and
  random moves reach at any cost, values are kept after all.
- *Annealing*: levels of a few values at a time are changed at random, with a fixed seed, and stay so where that costs
  less, or, in the beginning, hardly more.
- *Exchanged*: each of the costliest values is kept for once, and what is cheaper dropped in its place.

A trial of one value after the other takes too long where there are thousands. So in large programs three choices
compete: cuts of the chain of stages (`chain_cuts.py`), which are near the optimum where little memory is left; equal
values of equal blocks together (`equal_values.py`), which are where values are made again once; and greedy steps alone.
The few costliest values of the best are exchanged.

All is bounded by numbers of trials and not by time, so a plan does not depend on how fast the machine is. In programs
that are small enough a limit gets what the next of a ladder of fixed rungs gets, so that more bytes take no more time.
Chen and others, "Training deep nets with sublinear memory cost" (arXiv 1604.06174), cut evenly; Kusumoto and others, "A
graph theoretic framework of recomputation algorithms" (2019), and Checkmate (Jain and others, 2020) choose by values,
exactly or nearly so, in minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.recompute.annealing import lower_cost, lower_floors
from singa_lite.compiler.recompute.chain_cuts import cuts
from singa_lite.compiler.recompute.equal_values import EqualValues
from singa_lite.compiler.recompute.local_search import Choice, LocalSearch, by_floor, by_time
from singa_lite.compiler.recompute.repeats import PER_CHAIN, PER_READER, Repeater, level_of
from singa_lite.compiler.recompute.stages import Stage, stages

#: From one rung of the ladder of limits to the next.
RUNG = 0.97
#: Candidates of a program for which there is time to look at rungs, and at more forms than one.
MOST_WITH_RUNGS = 200
#: By which the lowest floor is sought, and below which no limit is kept where the least is named.
STEP_DOWN, NAMED = 0.98, 0.97
#: Trials of a turn: how many of the best to drop, to keep for a chain alone, and for a reader alone.
WIDTHS, NARROW = (3, 1, 1), (1, 1, 1)
#: Turns that go on from levels of another size of the batch, and of the greedy search in large programs.
REPAIRS, TURNS = 40, 400
#: How often the cuts of a chain are tried again with less, where they take more than their stages say.
TRIES = 4
#: Share of the free floor below which the greedy search is left out, if cuts of the chain fit.
CUTS_WIN = 0.2
#: What takes more than so many times the seconds of the cheapest choice is not exchanged.
NEAR = 1.1
#: From one aim of cuts to the next, where the least is sought.
LOWER_CUTS = 0.6


class Search:
    """One program's search, for any limits. What a limit gives does not depend on those that were asked before."""

    def __init__(self, program: Program) -> None:
        self.base = program
        self._local = LocalSearch(Repeater(program), program.target.cost)
        candidates = self._local.repeater.candidates
        self._solver = LargeSearch(self._local) if self._local.at_once > 1 else SmallSearch(self._local)
        self._found: dict[int, Choice | None] = {}
        self.free = self._local.choice()
        #: Whether there is time to look at more limits and forms than the one.
        self.is_small = len(candidates) <= MOST_WITH_RUNGS

    def cheapest(self, limit: int) -> Choice | None:
        """The cheapest choice found whose live bytes are at most `limit`; None where none was found."""
        if self.free.floor <= limit:
            return self.free
        return self._solved(self.rung(limit)) or self._solved(limit)

    def rung(self, limit: int) -> int:
        """The next limit of the ladder, not above this one, which takes half the time; if rungs are looked at."""
        if not self.is_small:
            return limit
        alignment, number = self.base.target.alignment, 0
        while (nbytes := int(self.free.floor * RUNG**number) // alignment * alignment) > limit and nbytes > 0:
            number += 1
        return nbytes

    @property
    def lowest(self) -> Choice:
        """The choice of the lowest floor that was found, whatever it costs."""
        return self._solver.lowest

    @property
    def bound(self) -> int:
        """Live bytes that no choice is below."""
        return self._local.bounds.floor

    @cached_property
    def least(self) -> Choice:
        """The choice of the lowest floor that was found; in small programs a cheaper one within it."""
        best = self.lowest
        if isinstance(self._solver, LargeSearch):
            return best
        cheaper = self._solved(best.floor)
        while (lower := self._solved(int(NAMED * best.floor))) is not None:
            best = cheaper = lower
        return min(best, cheaper or best, key=by_time)

    def program(self, levels: Mapping[int, int]) -> Program:
        """The program that drops these."""
        self._local.begin(levels)
        return self._local.model.schedule.program()

    def from_levels(self, levels: Mapping[int, int], limit: int, thrifty: bool = True) -> Choice | None:
        """The choice within a limit that few moves lead to from these levels; None where they do not reach it.

        thrifty: take back what is needless; else the cost is of no interest.
        """
        if self.free.floor <= limit:
            return self.free
        candidates = self._local.repeater.candidates
        self._local.begin({block: level for block, level in levels.items() if block in candidates})
        if not self._local.lower(limit, NARROW, turns=REPAIRS):
            return None
        if thrifty:
            self._local.take_back(limit)
        return self._local.choice()

    def _solved(self, limit: int) -> Choice | None:
        """The cheapest choice found within a limit, searched for once; None where none was found."""
        if limit not in self._found:
            self._found[limit] = self._solver.cheapest(limit)
        return self._found[limit]


class SmallSearch:
    """The search of a program whose values are tried one by one."""

    def __init__(self, local: LocalSearch) -> None:
        self._local = local

    def cheapest(self, limit: int) -> Choice | None:
        """The cheapest choice found within a limit; None where none was found."""
        if limit < self._local.bounds.floor:
            return None
        self._local.begin(self._local.bounds.levels(limit))
        if self._local.lower(limit, WIDTHS):
            self._local.take_back(limit)
        elif (below := self._from_low_floors(limit)) is not None:
            self._local.begin(below.levels)
        else:
            return None
        lower_cost(self._local, limit)
        self._local.exchange(limit)
        return self._local.choice()

    @property
    def lowest(self) -> Choice:
        """The choice of the lowest floor that small steps reach."""
        return min((trail[-1] for trail in self._trails), key=by_floor)

    def _from_low_floors(self, limit: int) -> Choice | None:
        """The cheapest of what is left of each trail's cheapest choice within the limit, when values are taken back."""
        found = []
        for trail in self._trails:
            if trail[-1].floor <= limit:
                self._local.begin(min((one for one in trail if one.floor <= limit), key=by_time).levels)
                self._local.take_back(limit)
                found.append(self._local.choice())
        return min(found, key=by_time, default=None)

    @cached_property
    def _trails(self) -> list[list[Choice]]:
        """Choices of ever lower floors, each list from another start; what they cost is not asked."""
        candidates = self._local.repeater.candidates
        starts = [{}, *(dict.fromkeys(candidates, level) for level in (PER_READER, PER_CHAIN))]
        trails = [list(self._lowered_from(start)) for start in starts]
        self._local.begin(min((trail[-1] for trail in trails), key=by_floor).levels)
        return [*trails, [self._local.choice(), *lower_floors(self._local)]]

    def _lowered_from(self, start: Mapping[int, int]) -> Iterator[Choice]:
        self._local.begin(start)
        best = self._local.choice()
        yield best
        while best.floor and self._local.lower(int(best.floor * STEP_DOWN), NARROW):
            best = self._local.choice()
            yield best


class LargeSearch:
    """The search of a program with many candidates: cuts of the chain of its stages, equal values, and greedy steps."""

    def __init__(self, local: LocalSearch) -> None:
        self._local = local

    def cheapest(self, limit: int) -> Choice | None:
        """The cheapest choice found within a limit; None where none was found."""
        found = [self._by_cuts(limit)]
        if limit >= CUTS_WIN * self._free:
            found += [self._greedy(limit), self._by_equal_values(limit)]
        fitting = [choice for choice in found if choice is not None and choice.floor <= limit]
        if not fitting and self.lowest.floor <= limit:
            fitting.append(self.lowest)
        least = min((choice.seconds for choice in fitting), default=0.0)
        near = [self._exchanged(choice, limit) for choice in fitting if choice.seconds <= NEAR * least]
        return min(near, key=by_time, default=None)

    def _exchanged(self, choice: Choice, limit: int) -> Choice:
        self._local.begin(choice.levels)
        self._local.exchange(limit)
        return self._local.choice()

    @cached_property
    def lowest(self) -> Choice:
        """The choice of the lowest floor that was found."""
        aim, found = self._free, list[Choice]()
        while (choice := self._cut_to(aim)) is not None:
            found.append(choice)
            aim = int(aim * LOWER_CUTS)
        if not found or min(found, key=by_floor).floor >= CUTS_WIN * self._free:
            found.append(self._greedy(int(CUTS_WIN * self._free)))
        return min(found, key=by_floor)

    @cached_property
    def _equal(self) -> EqualValues:
        return EqualValues(self._local)

    @cached_property
    def _chain(self) -> Sequence[Stage]:
        self._local.begin({})
        return stages(self._local.model)

    @cached_property
    def _free(self) -> int:
        self._local.begin({})
        return self._local.model.floor

    def _by_cuts(self, limit: int) -> Choice | None:
        """Cuts of the chain of stages within a limit, tried with less where they take more; None where none are."""
        aim = limit
        for _ in range(TRIES):
            choice = self._cut_to(aim)
            if choice is None or choice.floor <= limit:
                return choice
            aim -= choice.floor - limit
        return None

    def _cut_to(self, aim: int) -> Choice | None:
        """Cuts that take about so many bytes; None where no cuts take as few."""
        depths = cuts(self._chain, aim) if aim > 0 else None
        if depths is None:
            return None
        self._local.begin({block: level_of(depth) for block, depth in depths.items()})
        return self._local.choice()

    def _by_equal_values(self, limit: int) -> Choice:
        """Equal values of equal blocks dropped together; those that are needless are kept after all."""
        choice = self._equal.dropped(limit)
        if choice.floor > limit:
            return choice
        self._local.begin(choice.levels)
        self._local.take_back(limit)
        return self._local.choice()

    def _greedy(self, limit: int) -> Choice:
        """Values dropped one group after the other; as near to the limit as so many turns come."""
        self._local.begin({})
        self._local.lower(limit, NARROW, turns=TURNS)
        return self._local.choice()
