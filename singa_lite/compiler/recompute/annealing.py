"""Annealing: how a few values are held is changed at random, and stays so where that helps, or is hardly for the worse.

Where a limit leaves little room, no single step helps any more long before the cost is near the least: several values
must be dropped for others to be kept. Moves that cost a little more are taken too, ever fewer of them (threshold
accepting: Dueck and Scheuer, Journal of Computational Physics 90, 1990). Numbers come from a generator with a fixed
seed, and all is bounded by numbers of trials, so that a plan is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

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
#: On the way to a lower floor: the trials for each candidate and at most, the next floor as a share of the one before,
#: and by how much bytes above it may rise with a move.
LOWERING_EACH, LOWERING, STEP_DOWN, SWELL = 100, 6000, 0.98, 0.02


class _Moves:
    """Random moves of one search. Numbers go on from one to the next."""

    def __init__(self, local: LocalSearch) -> None:
        writers = local.repeater.writers
        self._levels = local.model.levels
        self._blocks = sorted(local.repeater.candidates, key=lambda block: (writers[block][0], block))
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


def lower_cost(local: LocalSearch, limit: int, rounds: int = ROUNDS) -> None:
    """Go on from what is chosen now to the cheapest choice within the limit that is come by."""
    model, moves = local.model, _Moves(local)
    best, rise = local.choice(), RISE * model.cost
    least, trials = model.cost, min(TRIALS, TRIALS_EACH * len(local.repeater.candidates))
    for done in range(rounds if trials else 0):
        before = least
        for trial in range(1, trials + 1):
            most = int(rise * (1 - (done + trial / trials) / rounds) * moves.number() * moves.number())
            if not local.change_below(moves.next(), model.cost + most + 1, limit):
                continue
            model.settle()
            if model.cost < least:
                least, best = model.cost, local.choice()
        if least > WORTH_ANOTHER * before:
            break
    local.begin(best.levels)


def lower_floors(local: LocalSearch) -> Iterator[Choice]:
    """Choices of ever lower floors, from what is chosen now, whatever they cost; with few repeats trials take less."""
    lower_cost(local, local.model.floor, 1)
    model, moves = local.model, _Moves(local)
    trials = most = min(LOWERING, LOWERING_EACH * len(local.repeater.candidates))
    while trials > 0 and model.floor > local.bounds.floor:
        aim = max(int(STEP_DOWN * model.floor), local.bounds.floor)
        excess = model.excess(aim)
        while model.floor > aim and trials > 0:
            trials -= 1
            allowed, levels, mark = excess * (1 + SWELL * trials / most), moves.next(), model.mark()
            above = model.excess(aim) if model.change(levels) else None
            if above is None or above > allowed:
                model.back_to(mark)
                continue
            model.settle()
            excess = above
        if model.floor <= aim:
            yield local.choice()
