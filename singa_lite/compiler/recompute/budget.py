"""The pass that keeps a limit: the forms that a program may have, each searched for what to drop and make again.

Values that lie in one block, as concatenations in place leave them, can only be dropped together. So forms in which
some of these blocks are made by copies compete (`concat.py`): which takes least time within a limit is found by asking
for one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import fsum, inf
from typing import NamedTuple

from singa_lite.compiler.ir.operation import Instruction, Transfer
from singa_lite.compiler.ir.program import Program, floor, split_joined
from singa_lite.compiler.ir.time_model import BYTES, CALL
from singa_lite.compiler.recompute.local_search import Choice
from singa_lite.compiler.recompute.search import Search
from singa_lite.compiler.share.in_place import in_place


class HeldLevels(NamedTuple):
    """The levels at which values are held. program: before it has repeats; levels: of its blocks, see `repeats.py`."""

    program: Program
    levels: dict[int, int]


def matched_levels(chosen: HeldLevels, program: Program) -> dict[int, int]:
    """The levels of the same blocks in another program. Blocks are matched by the calls that use them, and these by
    their numbers; of those that are not in both records the levels are left out.
    """
    by_number = {one.number: one for one in program.instructions}
    to: dict[int, int] = {}
    for one in chosen.program.instructions:
        other = by_number.get(one.number)
        if other is not None and _is_same_call(one, other):
            for mine, theirs in zip(one.operands, other.operands, strict=True):
                if mine is not None and theirs is not None:
                    to.setdefault(mine.block, theirs.block)
    return {to[block]: level for block, level in chosen.levels.items() if block in to}


def _is_same_call(one: Instruction, other: Instruction) -> bool:
    return one.kernel == other.kernel and len(one.operands) == len(other.operands)


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

    def search_of(self, program: Program) -> Search:
        """The search of a program, kept if it has the same instructions."""
        for number, one in enumerate(self._programs):
            if one.instructions is program.instructions:
                if number not in self._kept:
                    self._kept[number] = Search(one)
                return self._kept[number]
        return Search(program)


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
    found = sorted(_searched_forms(program, searches, limit), key=lambda entry: entry[0])
    searches.count = len(found)
    if found:
        _, choice, search = found[min(searches.rank, len(found) - 1)]
    else:
        search = min(map(searches.search_of, (program, *program.rivals)), key=lambda one: one.lowest.floor)
        choice = search.least
    searches.chosen = HeldLevels(search.base, choice.levels)
    return replace(search.program(choice.levels), target=program.target, rivals=(), free=program.free)


def _searched_forms(program: Program, searches: Searches, limit: int) -> Iterator[tuple[float, Choice, Search]]:
    """The seconds and the choice of one form of the program after the other, up to one no better than that before it.

    Rivals stand in the order of what they have in common with the program. The last one is searched in any case where
    there is time for it.
    """
    forms, before = [program, *program.rivals], inf
    while forms:
        one = forms.pop(0)
        search, took = searches.search_of(one), total_seconds(one)
        choice = search.cheapest(limit) if took < before else None
        if choice is not None:
            took += choice.seconds
            yield took, choice, search
        if took >= before:
            forms = forms[-1:] if search.is_small else []
        elif choice is not None:
            before = took


def total_seconds(program: Program) -> float:
    """Returns the seconds of all calls of a program."""
    return sum(map(program.target.cost, program.instructions))


def copy_seconds(nbytes: int, link: float) -> float:
    """Seconds of copying so many bytes in one direction. link: see `Target`."""
    return CALL + nbytes / (BYTES * link)


def waiting(program: Program) -> float:
    """Seconds that a program is later for its copies."""
    link = program.target.link
    if link is None or not program.host_sizes:
        return 0.0
    now = computing = 0.0
    free = {True: 0.0, False: 0.0}
    done: dict[int, float] = {}
    for instruction in program.instructions:
        if instruction.transfer is None:
            took = program.target.cost(instruction)
            now, computing = now + took, computing + took
            continue
        target = instruction.writes[0]
        if instruction.transfer is Transfer.BEGIN:
            out = target.block in program.host_sizes
            free[out] = done[target.block] = max(now, free[out]) + copy_seconds(target.nbytes, link)
        if instruction.transfer is Transfer.END:
            now = max(now, done[target.block])
    return now - computing


def is_free(program: Program) -> bool:
    """Whether it is what runs without a limit: the same repeats, and no copies to host memory."""
    made, free = (sorted(i.repeats for i in of if i.repeats is not None) for of in (program.instructions, program.free))
    return made == free and not program.host_sizes


def estimated_slowdown(program: Program, free: Program | None = None) -> float:
    """The time by which a program takes longer than without a limit: repeats and waiting for copies; as a share.

    free: the program without a limit, against which it is taken; another form of it may have been chosen, whose calls
    without the repeats take longer. None: it is this one without its repeats. Costs are asked for only where the
    program differs from the free one.
    """
    if program.free and is_free(program):
        return 0.0
    program = split_joined(program)  # as costs are of single calls
    cost, wait = program.target.cost, waiting(program)
    computed = [instruction for instruction in program.instructions if instruction.transfer is None]
    before = program.free if free is None else free.instructions
    before = before or tuple(instruction for instruction in computed if instruction.repeats is None)
    if not wait and before == tuple(computed):
        return 0.0
    return (fsum(map(cost, computed)) + wait) / fsum(map(cost, before)) - 1.0
