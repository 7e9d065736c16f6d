"""Chance: how a few values are held is changed at random, and stays so where that helps, or is hardly for the worse.

Where a limit leaves little room, no single step helps any more long before the cost is near the least: several values
must be dropped for others to be kept. Moves that cost a little more are taken too, ever fewer of them (threshold
accepting: Dueck and Scheuer, Journal of Computational Physics 90, 1990). Numbers come from a generator with a fixed
seed, and all is bounded by numbers of trials, so that a plan is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import numpy as np

from singa_lite.compiler.recompute.local_search import Choice, Levels, LocalSearch
from singa_lite.compiler.recompute.repeats import KEPT, ONCE, PER_CHAIN, PER_READER, SEGMENT

SEED = 1
#: Trials of a round, for each candidate and at most; how many rounds, and by how much one must lower the cost for
#: another.
TRIALS_EACH, TRIALS, ROUNDS, WORTH_ANOTHER = 15, 1500, 6, 0.995
#: By which share of the cost a move may raise it at most, in the beginning; in the end by nothing.
RISE = 0.04
#: Of values that are changed at once: the chance of one alone, and of at most two; how near the others stand to it, in
#: the order of the program, and the chance that they stand so.
ALONE, AT_MOST_TWO, NEAR, IS_NEAR = 0.4, 0.7, 8, 0.6
#: Ways to hold a value, as often as they are tried.
WAYS = (KEPT, ONCE, ONCE, PER_CHAIN, PER_READER, SEGMENT)
#: On the way to a lower floor: the trials for each candidate and at most, by how much a floor is told to be lower, and
#: by how much bytes above it may rise with a move.
LOWERING_EACH, LOWERING, STEP_DOWN, SWELL = 100, 6000, 0.98, 0.02


class _Moves:
    """Moves of one search. Numbers go on from one to the next."""

    def __init__(self, descent: LocalSearch) -> None:
        writers = descent.repeater.writers
        self._of, self._sketch = descent.repeater, descent.sketch
        self._levels = descent.sketch.levels
        self._blocks = sorted(descent.repeater.candidates, key=lambda block: (writers[block][0], block))
        self.number = Random(SEED).random

    def next(self) -> Levels:
        """Other levels of one value, or of some."""
        number, count = self.number, len(self._blocks)
        first, chance = int(number() * count), number()
        at = [first]
        for _ in range((chance >= ALONE) + (chance >= AT_MOST_TWO)):
            is_near = number() < IS_NEAR
            other = first + int(number() * (2 * NEAR + 1)) - NEAR if is_near else int(number() * count)
            at.append(min(max(other, 0), count - 1))
        return {block: self._other(self._levels.get(block, KEPT)) for block in map(self._blocks.__getitem__, at)}

    def _other(self, level: int) -> int:
        new = WAYS[int(self.number() * len(WAYS))]
        if new != level:
            return new
        return ONCE if level == KEPT else KEPT

    def is_hopeless(self, levels: Levels, most: int, limit: int) -> bool:
        """Whether a move, that may raise the cost by so much at most, fails for certain, as little tells.

        What is only dropped has to be made again once at least; what is kept after all needs room where it was not.
        """
        dropped = [block for block in levels if block not in self._levels]
        if len(dropped) == len(levels):
            steps = {step for block in dropped for step in self._of.writers[block]}
            return sum(map(self._sketch.costs.__getitem__, steps)) > most
        kept = [block for block, level in levels.items() if level == KEPT]
        return any(self._has_no_room(block, dropped, limit) for block in kept)

    def _has_no_room(self, block: int, dropped: Sequence[int], limit: int) -> bool:
        start, stop = self._held_anew(block)
        live = self._sketch.at_step[start:stop]
        if not len(live):
            return False
        gaps = [(self._of.candidates[other], self._sketch.sizes[other]) for other in dropped]
        if gaps:
            live = live.copy()
        for gap, nbytes in gaps:
            live[max(gap.before + 1 - start, 0) : max(gap.behind - start, 0)] -= nbytes
        return int(live.max()) + self._sketch.sizes[block] > limit

    def _held_anew(self, block: int) -> tuple[int, int]:
        """The steps from which and until which a block is held that was dropped, if it is kept after all."""
        before, behind = self._of.candidates[block]
        users = self._sketch.schedule.users.get(block, {})
        return before + 1, min((step for step, use in users.items() if use.is_made), default=behind)

    def swells(self, levels: Levels, aim: int, most: float) -> bool:
        """Whether a move leaves more bytes above the aim than so many, as its own values tell, whatever else moves."""
        sketch, added = self._sketch, np.zeros(len(self._sketch.at_step) + 1, np.int64)
        for block, level in levels.items():
            if level == KEPT and block in self._levels:
                start, stop = self._held_anew(block)
                added[start] += sketch.sizes[block]
                added[max(start, stop)] -= sketch.sizes[block]
            elif level != KEPT and block not in self._levels:
                before, behind = self._of.candidates[block]
                added[before + 1] -= sketch.sizes[block]
                added[behind] += sketch.sizes[block]
        at_step = sketch.at_step + np.cumsum(added[:-1]) - aim
        return int(at_step[at_step > 0].sum()) > most


def made_cheaper(descent: LocalSearch, limit: int, rounds: int = ROUNDS) -> None:
    """Go on from what is chosen now to the cheapest choice within the limit that is come by."""
    sketch, moves = descent.sketch, _Moves(descent)
    best, rise = descent.choice(), RISE * descent.sketch.cost
    least, trials = sketch.cost, min(TRIALS, TRIALS_EACH * len(descent.repeater.candidates))
    for done in range(rounds if trials else 0):
        before = least
        for trial in range(1, trials + 1):
            most = int(rise * (1 - (done + trial / trials) / rounds) * moves.number() * moves.number())
            levels = moves.next()
            if moves.is_hopeless(levels, most, limit):
                continue
            mark = sketch.mark()
            if not sketch.change_below(levels, sketch.cost + most + 1, limit):
                sketch.back_to(mark)
                continue
            sketch.settle()
            if sketch.cost < least:
                least, best = sketch.cost, descent.choice()
        if least > WORTH_ANOTHER * before:
            break
    descent.begin(best.levels)


def lowered(descent: LocalSearch) -> Iterator[Choice]:
    """Choices of ever lower floors, from what is chosen now, whatever they cost; with few repeats trials take less."""
    made_cheaper(descent, descent.sketch.floor, 1)
    sketch, moves = descent.sketch, _Moves(descent)
    trials = most = min(LOWERING, LOWERING_EACH * len(descent.repeater.candidates))
    while trials > 0 and sketch.floor > descent.forced.floor:
        aim = max(int(STEP_DOWN * sketch.floor), descent.forced.floor)
        excess = sketch.excess(aim)
        while sketch.floor > aim and trials > 0:
            trials -= 1
            allowed, levels = excess * (1 + SWELL * trials / most), moves.next()
            if moves.swells(levels, aim, allowed):
                continue
            mark = sketch.mark()
            above = sketch.excess(aim) if sketch.change(levels) else None
            if above is None or above > allowed:
                sketch.back_to(mark)
                continue
            sketch.settle()
            excess = above
        if sketch.floor <= aim:
            yield descent.choice()
