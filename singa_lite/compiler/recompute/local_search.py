"""The moves of the search for repeats: down to a limit, values kept again within it, and values exchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from singa_lite.compiler.ir.time_model import Cost
from singa_lite.compiler.recompute.live_bytes_model import LiveBytesBounds, LiveBytesModel, Mark
from singa_lite.compiler.recompute.repeats import KEPT, ONCE, PER_CHAIN, PER_READER, SEGMENT, Repeater


class Ranking:
    """The candidates of a model. What each costs by itself is remembered until what it depends on is dropped."""

    def __init__(self, model: LiveBytesModel) -> None:
        self._model = model
        self._repeater = of = model.repeater
        self._blocks = sorted(of.candidates)
        self._index = {block: index for index, block in enumerate(self._blocks)}
        gaps = [of.candidates[block] for block in self._blocks]
        self._before = np.array([gap.before for gap in gaps], np.int64)
        self._behind = np.array([gap.behind for gap in gaps], np.int64)
        self._sizes = np.array([model.sizes[block] for block in self._blocks], np.int64)
        self._costs = np.ones(len(gaps), np.int64)
        self._depending: dict[int, set[int]] = {}
        self._dropped: set[int] = set()
        self._stale = set(self._blocks)

    def best(self, level: int, limit: int, others: set[int]) -> list[int]:
        """Blocks that may be raised to this level from the one below, the best first; without those of `others`."""
        levels = self._model.levels
        fitting = [b for b in self._blocks if levels.get(b, KEPT) == level - 1 and b not in others]
        index = np.array([self._index[block] for block in fitting], np.int64)
        scores = self._freed(limit)[index] / self.costs()[index]
        return [fitting[at] for at in np.argsort(-scores, kind="stable") if scores[at] > 0]

    def by_cost(self) -> list[int]:
        """The blocks that are dropped, the costliest first."""
        costs = self.costs()
        return sorted(self._model.levels, key=lambda block: (-costs[self._index[block]], block))

    def costs(self) -> np.ndarray:
        """Of making each candidate again where it is first read behind its gap, if no copy of another was there."""
        now = set(self._model.levels)
        for block in now ^ self._dropped:
            self._stale |= self._depending.get(block, set())
        self._dropped = now
        for block in self._stale:
            self._costs[self._index[block]] = max(1, self._cost(block))
        self._stale = set()
        return self._costs

    def _freed(self, limit: int) -> np.ndarray:
        """Of each candidate: its bytes, as often as a step or an insert of its gap has more live bytes than `limit`."""
        over = self._model.counts_above(limit)
        sums = np.concatenate(([0], np.cumsum(over)))
        freed: np.ndarray = self._sizes * np.maximum(sums[self._behind] - sums[self._before + 1], 0)
        return freed

    def _cost(self, block: int) -> int:
        now = self._repeater.candidates[block].behind
        needed = self._repeater.chain([block], lambda other: self._is_absent(other, block, now))
        return sum(self._model.costs[step] for step in needed)

    def _is_absent(self, other: int, block: int, now: int) -> bool:
        """Whether `other` is not there at step `now`; noted as what `block` depends on."""
        last = self._repeater.passing.get(other)
        if last is not None:
            return last < now
        self._depending.setdefault(other, set()).add(block)
        return other in self._dropped and self._repeater.candidates[other].before < now


#: Trials that gained nothing, after which a value is left as it is.
STRIKES = 3
#: Values dropped at once: one for every so many candidates.
CANDIDATES_AT_ONCE = 400
#: How many of the costliest values are exchanged, by how many turns each; the same in large programs.
EXCHANGED, LARGE_EXCHANGED = (24, 6), (4, 400)
#: Turns of a greedy attempt for each candidate.
MOST_TURNS = 3
#: Rounded costs are whole picoseconds, which sum up to the same in any order.
SECOND = 1e12
#: All levels, the cheapest first: of two ways to hold a value, that which has it there for more of what reads it costs
#: no more.
BY_COST = (KEPT, ONCE, SEGMENT, PER_CHAIN, PER_READER)

Levels = dict[int, int]


class Choice(NamedTuple):
    """A choice of values to drop, the seconds of all its repeats, and its largest sum of live bytes."""

    seconds: float
    floor: int
    levels: Levels


class LocalSearch:
    """One program's repeats as they are chosen now, and moves that change them for the better.

    repeater: what can be dropped; cost: seconds of a call; at_once: how many values a move drops together, more than
    one in large programs alone.
    """

    def __init__(self, repeater: Repeater, cost: Cost) -> None:
        self.repeater = repeater
        self.model = LiveBytesModel(repeater, {step: round(SECOND * cost(i)) for step, i in repeater.repeats.items()})
        self._ranking = Ranking(self.model)
        self.bounds = LiveBytesBounds(self.model)
        self.at_once = 1 + len(repeater.candidates) // CANDIDATES_AT_ONCE

    def choice(self) -> Choice:
        """What is chosen now."""
        return Choice(self.model.cost / SECOND, self.model.floor, dict(self.model.levels))

    def begin(self, levels: Mapping[int, int]) -> None:
        """Drop these and nothing else; where one of them could not be made again, that is kept."""
        now = self.model.levels
        self._try_levels({block: KEPT for block in now if block not in levels})
        self._drop([(block, level) for block, level in levels.items() if now.get(block) != level])
        self.model.settle()

    def _drop(self, levels: Sequence[tuple[int, int]]) -> None:
        if levels and self._try_levels(dict(levels)) is None and len(levels) > 1:
            middle = len(levels) // 2
            self._drop(levels[:middle])
            self._drop(levels[middle:])

    def _try_levels(self, levels: Mapping[int, int]) -> Mark | None:
        """Set levels; how to go back. None where a block could not be made again: nothing is changed then."""
        mark = self.model.mark()
        if self.model.change(levels):
            return mark
        self.model.back_to(mark)
        return None

    def lower(
        self, limit: int, widths: Sequence[int], but: int = -1, bound: int | None = None, turns: int = -1
    ) -> bool:
        """Drop values until the limit holds; whether it does. but: not this one; bound: of the cost; turns: at most."""
        model, strikes = self.model, dict[tuple[int, int], int]()
        turns = turns if turns >= 0 else MOST_TURNS * len(self.repeater.candidates) // self.at_once
        while model.floor > limit:
            groups = list(self._groups(limit, widths, {but}, strikes))
            if turns == 0:
                return False
            turns -= 1
            best = self._best_of(groups, limit, bound, strikes)
            if best is not None:
                self._try_levels(best)
            elif bound is not None or not groups:
                return False
            if but < 0:
                model.settle()
        return True

    def _groups(
        self, limit: int, widths: Sequence[int], others: set[int], strikes: Mapping[tuple[int, int], int]
    ) -> list[Levels]:
        """What a turn tries, of each level the best that have not failed too often."""
        groups: list[Levels] = []
        for level, width in zip((ONCE, PER_CHAIN, PER_READER), widths, strict=True):
            out = {block for block, of in strikes if of == level and strikes[block, of] >= STRIKES}
            ranked = self._ranking.best(level, limit, others | out)
            for at in range(width):
                group = ranked[at * self.at_once : (at + 1) * self.at_once]
                groups += [dict.fromkeys(group, level)] if group else []
        return groups

    def _best_of(
        self, groups: Sequence[Levels], limit: int, bound: int | None, strikes: dict[tuple[int, int], int]
    ) -> Levels | None:
        """The group that takes most of the excess a second; None where none takes any within the bound of the cost."""
        model, best, most = self.model, None, 0.0
        excess, cost, mark = model.excess(limit), model.cost, model.mark()
        for group in groups:
            possible = model.change(group, bound)
            gain = excess - model.excess(limit) if possible else 0
            if gain > most * max(model.cost - cost, 1):
                best, most = group, gain / max(model.cost - cost, 1)
            model.back_to(mark)
            if gain <= 0:
                for one in group.items():
                    strikes[one] = strikes.get(one, 0) + (STRIKES if not possible and len(group) == 1 else 1)
        return best

    def take_back(self, limit: int) -> None:
        """Values are kept after all where the limit holds without, costliest first, in groups that halve."""
        must = self.bounds.levels(limit)
        blocks = [block for block in self._ranking.by_cost() if block not in must]
        size = max(1, len(blocks) // 4)
        while blocks:
            failed: list[int] = []
            for start in range(0, len(blocks), size):
                group = blocks[start : start + size]
                if not self.change_below(dict.fromkeys(group, KEPT), self.model.cost, limit):
                    failed += group
            if size == 1:
                return
            blocks, size = failed, max(1, size // 2)

    def change_below(self, levels: Mapping[int, int], cost: int, limit: int) -> bool:
        """Set levels, if the limit holds then and all repeats cost less than that; whether it is so."""
        mark = self.model.mark()
        if self.model.change(levels, cost, limit):
            return True
        self.model.back_to(mark)
        return False

    def exchange(self, limit: int) -> None:
        """The costliest values are held otherwise, or kept and others dropped in their place, if that is cheaper."""
        must = self.bounds.levels(limit)
        number, turns = EXCHANGED if self.at_once == 1 else LARGE_EXCHANGED
        for block in self._ranking.by_cost()[:number]:
            now, least = self.model.levels.get(block, KEPT), must.get(block, KEPT)
            for level in BY_COST[BY_COST.index(least) : BY_COST.index(min(now, SEGMENT))]:
                if self.change_below({block: level}, self.model.cost, limit):
                    break
            if block in self.model.levels and block not in must:
                self._exchange_one(block, limit, turns)

    def _exchange_one(self, block: int, limit: int, turns: int) -> None:
        self.model.settle()
        before, cost = self.model.mark(), self.model.cost
        if self._try_levels({block: KEPT}) is None:
            return
        if self.lower(limit, (8, 3, 1), block, cost, turns):
            self.take_back(limit)
        if self.model.floor > limit or self.model.cost >= cost:
            self.model.back_to(before)


def by_time(choice: Choice) -> tuple[float, int]:
    """A key by which the cheapest choice comes first."""
    return choice.seconds, choice.floor


def by_floor(choice: Choice) -> tuple[int, float]:
    """A key by which the lowest floor comes first."""
    return choice.floor, choice.seconds
