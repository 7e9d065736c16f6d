"""The search in large programs: cuts of the chain of its stages, and greedy steps.

A trial of one value after the other takes too long where there are thousands. Cuts of the chain of stages
(`chain_cuts.py`) are near the optimum of a chain, at any limit; where values differ much in what they cost, and not
much has to be dropped, the greedy search by values is better. The cheaper of both counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from singa_lite.compiler.recompute.chain_cuts import cuts
from singa_lite.compiler.recompute.local_search import Choice, LocalSearch, by_floor, by_time
from singa_lite.compiler.recompute.repeats import Repeater, level_of
from singa_lite.compiler.recompute.stages import Stage, stages

#: How often the cuts of a chain are tried again with less, where they take more than was told of the stages.
TRIES = 4
#: Share of the free floor below which the greedy search is left out, if cuts of the chain fit.
CUTS_WIN = 0.2
#: Turns of the greedy search.
TURNS = 400
#: From one aim of cuts to the next, where the least is sought.
LOWER_CUTS = 0.6
#: Of each turn, how many of the best are tried to drop, to keep for a chain alone, and for a reader alone.
WIDTHS = (1, 1, 1)


class Large:
    """The search of one large program."""

    def __init__(self, repeater: Repeater, descent: LocalSearch) -> None:
        self._repeater, self._descent = repeater, descent

    def within(self, limit: int) -> Choice | None:
        """The cheapest choice found within a limit; None where none was found."""
        found = [choice for choice in (self._by_cuts(limit),) if choice is not None]
        if limit >= CUTS_WIN * self._free:
            found += [choice for choice in (self._greedy(limit),) if choice.floor <= limit]
        found = found or [choice for choice in (self.lowest,) if choice.floor <= limit]
        return min(found, key=by_time, default=None)

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
