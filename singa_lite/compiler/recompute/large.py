"""The search in large programs: few starts, each from a choice of all values at once, and few trials behind it.

A trial of one value after the other takes too long where there are thousands. Cuts of the chain of stages
(`chain_cuts.py`) are near the optimum of a chain, at any limit; where values differ much in what they cost, and not
much has to be dropped, the greedy search by values is better. The cheaper of both counts. Where stages say nothing,
as where values of all the forward part go on to the end, cuts are even, by number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from singa_lite.compiler.recompute.chain_cuts import cuts
from singa_lite.compiler.recompute.local_search import Choice, LocalSearch
from singa_lite.compiler.recompute.repeats import KEPT, ONCE, SEGMENT, Repeater, level_of
from singa_lite.compiler.recompute.stages import Stage, stages

#: How often the cuts of a chain are tried again with less, where they take more than was told of the stages.
TRIES = 4
#: Share of the free floor below which the greedy search is left out, if cuts of the chain fit.
CUTS_WIN = 0.2
#: Turns of the greedy search.
TURNS = 400
#: From one aim of cuts to the next, where the least is sought.
LOWER_CUTS = 0.6
#: Trials of keeping values after all.
KEPT_AGAIN = 60
#: Of each turn, how many of the best are tried to drop, to keep for a chain alone, and for a reader alone.
WIDTHS = (1, 1, 1)
#: One of so many values is kept by even cuts, in one level, or in two of its square and itself.
EVEN = (8, 32, 96)
EVEN_IN_TWO = (8, 16)


class Large:
    """The search of one large program."""

    def __init__(self, repeater: Repeater, descent: LocalSearch) -> None:
        self._repeater, self._descent = repeater, descent

    def within(self, limit: int) -> Choice | None:
        """The cheapest choice found within a limit; None where none was found."""
        found = [choice for choice in (self._by_cuts(limit),) if choice is not None]
        if limit >= CUTS_WIN * self._free:
            found += [choice for choice in (self._greedy(limit),) if choice.floor <= limit]
        if not found:
            found = [choice for choice in (*self._even, self.lowest) if choice.floor <= limit]
        if not found:
            return None
        self._descent.begin(min(found, key=lambda choice: (choice.seconds, choice.floor)).levels)
        self._keep_again(limit)
        return self._descent.choice()

    @cached_property
    def lowest(self) -> Choice:
        """The choice of the lowest floor that was found."""
        aim, found = self._free, list[Choice]()
        while (choice := self._cut_to(aim)) is not None:
            found.append(choice)
            aim = int(aim * LOWER_CUTS)
        best = min(found or self._even, key=by_floor)
        if best.floor < CUTS_WIN * self._free:
            return best
        return min(best, self._greedy(int(CUTS_WIN * self._free)), key=by_floor)

    @cached_property
    def _chain(self) -> Sequence[Stage]:
        self._descent.begin({})
        return stages(self._descent.sketch)

    @cached_property
    def _free(self) -> int:
        self._descent.begin({})
        return self._descent.sketch.floor

    def _by_cuts(self, limit: int) -> Choice | None:
        """Cuts of the chain of stages; tried with less where they take more than was told beforehand."""
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
        self._descent.begin({block: level_of(depth) for block, depth in depths.items()})
        return self._descent.choice()

    def _greedy(self, limit: int) -> Choice:
        """Values dropped one group after the other; as near to the limit as so many turns come."""
        self._descent.begin({})
        self._descent.lower(limit, WIDTHS, turns=TURNS)
        return self._descent.choice()

    @cached_property
    def _even(self) -> list[Choice]:
        """Even cuts: all but every so many values are dropped."""
        writers = self._repeater.writers
        blocks = sorted(self._repeater.candidates, key=lambda block: writers[block][0])
        found = []
        for outer, inner in [*((every, every) for every in EVEN), *((every * every, every) for every in EVEN_IN_TWO)]:
            self._descent.begin(dict(evenly(blocks, outer, inner)))
            found.append(self._descent.choice())
        return found

    # ---- values that need not be dropped

    def _keep_again(self, limit: int) -> None:
        """Values are kept after all where the limit holds without, costliest first, in groups that halve."""
        waiting, tries = [self._with_room(limit)], KEPT_AGAIN
        while waiting and tries:
            group, tries = waiting.pop(0), tries - 1
            if group and not self._kept(group, limit) and len(group) > 1:
                middle = len(group) // 2
                waiting += [group[:middle], group[middle:]]

    def _with_room(self, limit: int) -> list[int]:
        """Dropped values that fit where they are not there now, costliest for their bytes first."""
        sketch, of = self._descent.sketch, self._repeater
        fitting = []
        for block in sketch.levels:
            gap = of.candidates[block]
            made = min((step for step in sketch.schedule.users.get(block, ())), default=gap.behind)
            live = sketch.at_step[gap.before + 1 : min(made, gap.behind)]
            if not len(live) or int(live.max()) + sketch.sizes[block] <= limit:
                fitting.append(block)
        cost = {block: sum(sketch.costs[step] for step in of.writers[block]) / sketch.sizes[block] for block in fitting}
        return sorted(fitting, key=lambda block: (-cost[block], block))

    def _kept(self, blocks: Sequence[int], limit: int) -> bool:
        """Keep these, if the limit holds then and the cost is lower; whether it is so."""
        sketch, cost = self._descent.sketch, self._descent.sketch.cost
        mark = sketch.mark()
        if sketch.change(dict.fromkeys(blocks, KEPT)) and sketch.floor <= limit and sketch.cost < cost:
            return True
        sketch.back_to(mark)
        return False


def by_floor(choice: Choice) -> tuple[int, float]:
    """A key by which the lowest floor comes first."""
    return choice.floor, choice.seconds


def evenly(blocks: Sequence[int], outer: int, inner: int) -> Iterator[tuple[int, int]]:
    """Every outer one is kept, every inner one kept from when it is first made again, in two levels."""
    for at, block in enumerate(blocks):
        if at % outer:
            yield block, SEGMENT if at % inner or outer == inner else ONCE
