"""The pass that keeps a limit: the forms that a program may have, each searched for what to drop and make again.

Values that lie in one block, as concatenations in place leave them, can only be dropped together. So forms in which
some of these blocks are made by copies compete (`concat.py`): which takes least time within a limit is found by asking
for one after the other, but for those that a bound says cannot win.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from singa_lite.compiler.ir.program import Program, floor
from singa_lite.compiler.recompute.carry import HeldLevels
from singa_lite.compiler.recompute.local_search import Choice
from singa_lite.compiler.recompute.search import Search
from singa_lite.compiler.share.in_place import in_place

#: A form that takes so many times as long as the best one is not looked at further.
WORTH_MORE = 1.02


class Searches:
    """The searches of a program and its rivals, which are asked for several limits, kept meanwhile.

    Any other program gets its own. program: the one, whatever its limit is.
    """

    def __init__(self, program: Program) -> None:
        self._programs = (program, *program.rivals)
        self._kept: dict[int, Search] = {}
        #: What the last limit was kept by; None where nothing had to be dropped.
        self.chosen: HeldLevels | None = None
        #: What the program is without a limit; None until `paid_for` was asked.
        self.free: Program | None = None
        #: Which of what is found within a limit is taken, the cheapest being 0; and how many there were the last time.
        self.rank, self.count = 0, 0

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
    searches.chosen, searches.count = None, 0
    if limit is None or floor(in_place(alone)) <= limit:
        return alone
    found = list(_searched_forms(program, searches, limit))
    fitting = [entry for entry in found if entry[0].floor <= limit]
    fitting.sort(key=lambda entry: entry[0].seconds + total_seconds(entry[1]))
    searches.count = len(fitting)
    choice, _, search = fitting[min(searches.rank, len(fitting) - 1)] if fitting else found[-1]
    searches.chosen = HeldLevels(search.base, choice.levels)
    return replace(search.program(choice.levels), target=program.target, rivals=(), free=program.free)


def _searched_forms(program: Program, searches: Searches, limit: int) -> Iterator[tuple[Choice, Program, Search]]:
    """What is found for one form of the program after the other, up to one that is no better than that before it.

    Rivals stand in the order of what they have in common with the program; those that cannot keep the limit, or only at
    a higher cost, are left out. The last one is asked in any case where there is time for it. Where none keeps the
    limit it is the least of the one that comes lowest.
    """
    forms, asked = [program, *program.rivals], list[tuple[Program, Search]]()
    before: float | None = None
    while forms:
        one = forms.pop(0)
        search = searches.of(one)
        asked.append((one, search))
        if not search.may_keep(limit):
            continue
        is_better = before is None or total_seconds(one) + search.least_cost(limit) < before
        worth = inf if before is None else WORTH_MORE * before - total_seconds(one)
        choices = search.all_within(limit, worth) if is_better else []
        yield from ((choice, one, search) for choice in choices)
        if choices:
            now = choices[0].seconds + total_seconds(one)
            before, is_better = (now, True) if before is None or now < before else (before, False)
        if not is_better:
            forms = forms[-1:] if search.is_small else []
    if before is None:
        one, search = min(asked, key=lambda entry: entry[1].lowest.floor)
        yield search.least, one, search


def total_seconds(program: Program) -> float:
    """Of all its calls."""
    return sum(map(program.target.cost, program.instructions))
