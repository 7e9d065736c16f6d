"""The search for what to drop and make again, so that a program stays within so many bytes for the least extra time.

The live bytes of a step that trains are a hill: they rise while the forward part runs and fall with the backward part.
To drop a value lowers the hill between its last use in the forward part and the first one behind; to make it again
costs what the chain of instructions back to values that are there costs. The search takes values by bytes above the
limit that they free a second that they cost, some at a time, and in the end takes back what turned out needless. It is
begun several times, from nothing and from even cuts, and with larger and smaller steps; the cheapest result wins.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from singa_lite.memory.problem import PlanError
from singa_lite.passes.in_place import in_place
from singa_lite.passes.program import Program, floor
from singa_lite.passes.repeats import KEPT, ONCE, PER_CHAIN, PER_READER, Repeater
from singa_lite.passes.sketch import Sketch
from singa_lite.passes.time_model import seconds

#: Of the excess over the limit, what one round of the search goes for.
SHARES = (0.1, 0.35, 1.0)
#: Limits to aim at, as shares of the one that is wanted: a tighter one sometimes gives a cheaper plan.
TARGETS = (1.0, 0.9)
#: By which the lowest floor is sought.
STEP_DOWN = 0.98

Levels = dict[int, int]


@dataclass
class Choice:
    """What is dropped, and what comes of it. A search holds thousands, so they take few bytes and have no schedule.

    live: bytes at each call of the schedule; seconds: of all repeats; position: of each step of the program, its call.
    """

    levels: Levels
    live: Sequence[int]
    seconds: float
    position: Sequence[int]

    @cached_property
    def floor(self) -> int:
        """The largest of the live bytes."""
        return max(self.live, default=0)

    def excess(self, limit: int) -> int:
        """Bytes above the limit, summed over the steps."""
        return sum(nbytes - limit for nbytes in self.live if nbytes > limit)


def within_limit(program: Program) -> Program:
    """The program with so many repeats that its live bytes stay within the target's limit, or as near as was found."""
    limit = program.target.limit
    if limit is None or floor(in_place(program)) <= limit:
        return program
    search = Search(program)
    schedule = search.repeater.schedule(search.within(limit).levels)
    return program if schedule is None else search.repeater.rewritten(schedule)


class Search:
    """One program's search, for any limits. Results are remembered, so a second limit takes less time."""

    def __init__(self, program: Program) -> None:
        self.repeater = Repeater(program)
        self.sizes = {block: program.rounded(program.sizes[block]) for block in self.repeater.candidates}
        self.sketch = Sketch(self.repeater)
        self.cost = {step: seconds(i) for step, i in self.repeater.repeats.items()}
        self._known: dict[tuple[tuple[int, int], ...], Choice | None] = {}

    def within(self, limit: int) -> Choice:
        """The cheapest choice whose live bytes are at most `limit`; where none was found, `least`."""
        free = self._evaluated({})
        if free is None:
            raise PlanError("wanted a program that runs without repeats")
        if free.floor <= limit:
            return free
        found = [
            self._needless_taken_back(choice, limit) if choice.floor <= limit else choice
            for start in self._starts()
            for target in TARGETS
            for share in SHARES
            if (choice := self._lowered(start, int(limit * target), share)) is not None
        ]
        fitting = [choice for choice in found if choice.floor <= limit]
        return min(fitting, key=lambda choice: (choice.seconds, choice.floor)) if fitting else self.least

    @cached_property
    def least(self) -> Choice:
        """The choice of the lowest floor that was found, whatever the limit is: going down by small steps."""
        found = [choice for start in self._starts() if (choice := self._lowered(start, 0, 1.0)) is not None]
        best = min(found, key=lambda choice: (choice.floor, choice.seconds))
        limit = int(best.floor * STEP_DOWN)
        while (lower := self._lowered(best.levels, limit, 1.0)) is not None and lower.floor < best.floor:
            best, limit = lower, int(lower.floor * STEP_DOWN)
        return best

    def choice(self, levels: Mapping[int, int]) -> Choice | None:
        """What comes of dropping these; None where one of them could not be made again."""
        chosen = {block: level for block, level in levels.items() if level != KEPT}
        key = tuple(sorted(chosen.items()))
        if key not in self._known:
            self._known[key] = self._evaluated(chosen)
        return self._known[key]

    def _evaluated(self, levels: Levels) -> Choice | None:
        schedule = self.repeater.schedule(levels)
        if schedule is None:
            return None
        extra = sum(self.cost[call.step] for call in schedule.calls if call.is_repeat)
        position = array("q", [at for at, call in enumerate(schedule.calls) if not call.is_repeat])
        return Choice(levels, array("q", self.sketch.live_bytes(schedule)), extra, position)

    def _starts(self) -> list[Levels]:
        """Nothing dropped; and all but every so many values, as even cuts through the program."""
        blocks = sorted(self.repeater.candidates, key=lambda block: self.repeater.writers[block][0])
        many = max(2, round(len(blocks) ** 0.5))
        cuts = [{b: PER_CHAIN for i, b in enumerate(blocks) if i % every} for every in (many, 2 * many)]
        return [{}, *cuts]

    def _lowered(self, start: Levels, limit: int, share: float) -> Choice | None:
        """From a start on, values are dropped until the limit holds, or nothing helps any more."""
        best = self.choice(start)
        for level in (ONCE, PER_CHAIN, PER_READER):
            aside: set[int] = set()
            while best is not None and best.floor > limit:
                ranked = [block for block in self._ranked(best, level, limit) if block not in aside]
                better = self._first_better(best, ranked, level, limit, share, aside)
                if better is None:
                    break
                best = better
        return best

    def _first_better(
        self, best: Choice, ranked: list[int], level: int, limit: int, share: float, aside: set[int]
    ) -> Choice | None:
        """With the first of the ranked dropped too, as many as the share of the excess takes, or half, and so on."""
        excess = best.excess(limit)
        while ranked:
            count = self._count(best, ranked, limit, share * excess)
            while count:
                tried = self.choice(best.levels | dict.fromkeys(ranked[:count], level))
                if tried is not None and tried.excess(limit) < excess:
                    return tried
                count //= 2
            aside.add(ranked.pop(0))
        return None

    def _count(self, best: Choice, ranked: list[int], limit: int, wanted: float) -> int:
        """How many of the ranked it takes to free that much of the excess."""
        over = self._over(best, limit)
        for count, block in enumerate(ranked, 1):
            wanted -= self.sizes[block] * self._within_gap(best, block, over)
            if wanted <= 0:
                return count
        return len(ranked)

    def _ranked(self, best: Choice, level: int, limit: int) -> list[int]:
        """Candidates below this level that free bytes above the limit, by bytes a second, the best first."""
        over = self._over(best, limit)
        absent = self.repeater.absent(best.levels)
        scores = {}
        for block in self.repeater.candidates:
            if best.levels.get(block, KEPT) >= level:
                continue
            freed = self.sizes[block] * self._within_gap(best, block, over)
            if freed:
                scores[block] = freed / self._own_seconds(block, absent)
        return sorted(scores, key=lambda block: (-scores[block], block))

    def _over(self, best: Choice, limit: int) -> list[int]:
        """At each step: how many steps before it have more live bytes than the limit."""
        return [0, *accumulate(int(nbytes > limit) for nbytes in best.live)]

    def _within_gap(self, best: Choice, block: int, over: list[int]) -> int:
        """How many such steps lie between the block's last use in the forward part and its first one behind."""
        gap = self.repeater.candidates[block]
        return over[best.position[gap.behind]] - over[best.position[gap.before] + 1]

    def _needless_taken_back(self, best: Choice, limit: int) -> Choice:
        """The same with values kept after all where the limit holds without, costliest first, in groups that halve."""
        absent = self.repeater.absent(best.levels)
        blocks = sorted(best.levels, key=lambda block: -self._own_seconds(block, absent))
        size = max(1, len(blocks) // 4)
        while blocks:
            failed = []
            for start in range(0, len(blocks), size):
                group = set(blocks[start : start + size])
                tried = self.choice({b: level for b, level in best.levels.items() if b not in group})
                if tried is not None and tried.floor <= limit and tried.seconds < best.seconds:
                    best = tried
                else:
                    failed += blocks[start : start + size]
            if size == 1:
                return best
            blocks, size = failed, max(1, size // 2)
        return best

    def _own_seconds(self, block: int, absent: Mapping[int, int]) -> float:
        """Of making the block again where it is first read behind its gap."""
        chain = self.repeater.chain([block], self.repeater.candidates[block].behind, absent)
        return sum(self.cost[step] for step in chain)
