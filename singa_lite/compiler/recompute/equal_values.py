"""Equal values of equal blocks: one order of what to drop for all of them, and how much of it a limit takes.

A chain of equal blocks has each value many times, of equal bytes and equal seconds to make it again. While the values
between two that are kept are made once, seconds add up. So what is best for one block is best for all: the values that
free most bytes a second are dropped first, in every block. Of the kind at which the limit holds only some have to be
dropped. These lie evenly along the chain, so that not many wait at a time when they are made again. How many is
found by halving, so a chain of any length takes a dozen trials.
"""

from __future__ import annotations

from collections import Counter

from singa_lite.compiler.recompute.local_search import Choice, LocalSearch
from singa_lite.compiler.recompute.repeats import ONCE

#: Multiples of it, without their whole parts, lie evenly however many there are.
GOLDEN = 0.6180339887498949


class EqualValues:
    """The candidates of a search in the order in which they are dropped, equal ones together."""

    def __init__(self, local: LocalSearch) -> None:
        self._local = local
        model, candidates, writers = local.model, local.repeater.candidates, local.repeater.writers
        kinds = {block: (model.sizes[block], self._seconds(block)) for block in candidates}
        before, place = Counter[tuple[int, int]](), dict[int, float]()
        for block in sorted(candidates, key=lambda block: (writers[block][-1], block)):
            before[kinds[block]] += 1
            place[block] = GOLDEN * before[kinds[block]] % 1.0
        rates = {block: size / max(1, seconds) for block, (size, seconds) in kinds.items()}
        self._order = sorted(candidates, key=lambda block: (-rates[block], place[block]))

    def _seconds(self, block: int) -> int:
        """Of making a value again where it is first read behind its gap, while all other candidates are there."""
        of = self._local.repeater
        now = of.candidates[block].behind
        return sum(self._local.model.costs[step] for step in of.chain([block], lambda b: of.passing.get(b, now) < now))

    def dropped(self, limit: int) -> Choice:
        """Returns the choice that drops the fewest values, in order, within the limit; all where none keeps it."""
        most, few, enough = self._first(len(self._order)), 0, len(self._order)
        while few < enough:
            number = (few + enough) // 2
            choice = self._first(number)
            if choice.floor <= limit:
                most, enough = choice, number
            else:
                few = number + 1
        return most

    def _first(self, number: int) -> Choice:
        self._local.begin(dict.fromkeys(self._order[:number], ONCE))
        return self._local.choice()
