"""The search for what to drop and make again, so that a program stays within so many bytes for the least extra time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from singa_lite.passes.in_place import in_place
from singa_lite.passes.program import Program, floor
from singa_lite.passes.repeats import KEPT, ONCE, PER_CHAIN, PER_READER, Repeater
from singa_lite.passes.sketch import Sketch
from singa_lite.passes.time_model import seconds

SHARES = (0.1, 0.35, 1.0)
TARGETS = (1.0, 0.9)
Levels = dict[int, int]


def within_limit(program: Program) -> Program:
    limit = program.target.limit
    if limit is None or floor(in_place(program)) <= limit:
        return program
    search = Search(program)
    return search.program(search.within(limit))


class Ranking:
    """Candidates by bytes above a limit that they free, a second that they cost."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        of = sketch.of
        self.blocks = sorted(of.candidates)
        self.index = {b: i for i, b in enumerate(self.blocks)}
        self.before = np.array([of.candidates[b].before for b in self.blocks], np.int64)
        self.behind = np.array([of.candidates[b].behind for b in self.blocks], np.int64)
        self.size = np.array([sketch.sizes[b] for b in self.blocks], np.int64)
        self.own = np.zeros(len(self.blocks), np.float64)
        self.contact: dict[int, set[int]] = {}
        self.dropped: set[int] = set()
        self.stale = set(self.blocks)

    def own_cost(self) -> np.ndarray:
        now = set(self.sketch.levels)
        for b in now ^ self.dropped:
            self.stale |= self.contact.get(b, set())
        self.dropped = now
        for b in self.stale:
            self.own[self.index[b]] = self._cost(b)
        self.stale = set()
        return self.own

    def _cost(self, block: int) -> int:
        of = self.sketch.of
        now = of.candidates[block].behind
        needed: set[int] = set()
        left, seen = [block], {block}
        while left:
            for step in of.writers[left.pop()]:
                if step in needed:
                    continue
                needed.add(step)
                for other in of.needs[step]:
                    if other in seen:
                        continue
                    last = of.passing.get(other)
                    if last is not None:
                        absent = last < now
                    else:
                        self.contact.setdefault(other, set()).add(block)
                        absent = other in self.dropped and of.candidates[other].before < now
                    if absent or other in of.written[step]:
                        seen.add(other)
                        left.append(other)
        return sum(self.sketch.costs[s] for s in needed)

    def freed(self, limit: int) -> np.ndarray:
        s = self.sketch
        over = np.concatenate(([0], np.cumsum((s.at_step > limit).astype(np.int64) + (s.across + s.within > limit))))
        return self.size * np.maximum(over[self.behind] - over[self.before + 1], 0)

    def ranked(self, level: int, limit: int):
        freed, own = self.freed(limit), self.own_cost()
        levels = self.sketch.levels
        score = freed / np.maximum(own, 1)
        for b, l in levels.items():
            if l >= level:
                score[self.index[b]] = 0
        order = np.lexsort((np.array(self.blocks), -score))
        return [(self.blocks[i], int(freed[i])) for i in order if score[i] > 0]


class Search:
    def __init__(self, program: Program, costs=None) -> None:
        self.repeater = Repeater(program)
        self.costs = costs or {step: int(1e12 * seconds(i)) for step, i in self.repeater.repeats.items()}
        self.tries = 0
        self.new()

    def new(self):
        self.sketch = Sketch(self.repeater, self.costs)
        self.ranking = Ranking(self.sketch)

    def trial(self, levels):
        self.tries += 1
        m = self.sketch.mark()
        if self.sketch.change(levels):
            return m
        self.sketch.back_to(m)
        return None

    def set(self, levels: Levels):
        old = self.sketch.levels
        self.sketch.mark()
        ok = self.sketch.change(
            {b: levels.get(b, KEPT) for b in {*old, *levels} if levels.get(b, KEPT) != old.get(b, KEPT)}
        )
        self.sketch.schedule.journal.forget()
        return ok

    def lower(self, limit, share, levels=(ONCE, PER_CHAIN, PER_READER), most=None, forbidden=()):
        s = self.sketch
        for level in levels:
            aside = set(forbidden)
            while s.floor > limit:
                ranked = [(b, f) for b, f in self.ranking.ranked(level, limit) if b not in aside]
                if not self.first_better(ranked, level, limit, share, aside):
                    break
                if most is not None:
                    most -= 1
                    if most <= 0:
                        return s.floor <= limit
        return s.floor <= limit

    def first_better(self, ranked, level, limit, share, aside):
        s = self.sketch
        excess = s.excess(limit)
        at = 0
        while at < len(ranked):
            wanted, count = share * excess, 0
            for _, f in ranked[at:]:
                count += 1
                wanted -= f
                if wanted <= 0:
                    break
            while count:
                m = self.trial({b: level for b, _ in ranked[at : at + count]})
                if m is not None:
                    if s.excess(limit) < excess:
                        return True
                    s.back_to(m)
                count //= 2
            aside.add(ranked[at][0])
            at += 1
        return False

    def take_back(self, limit):
        s = self.sketch
        own = self.ranking.own_cost()
        blocks = sorted(s.levels, key=lambda b: (-own[self.ranking.index[b]], b))
        size = max(1, len(blocks) // 4)
        while blocks:
            failed = []
            for i in range(0, len(blocks), size):
                group = blocks[i : i + size]
                cost = s.cost
                m = self.trial({b: KEPT for b in group})
                if m is not None and (s.floor > limit or s.cost >= cost):
                    s.back_to(m)
                    m = None
                if m is None:
                    failed += group
            if size == 1:
                return
            blocks, size = failed, max(1, size // 2)

    def starts(self):
        blocks = sorted(self.repeater.candidates, key=lambda b: self.repeater.writers[b][0])
        many = max(2, round(len(blocks) ** 0.5))
        return [{}, *({b: PER_CHAIN for i, b in enumerate(blocks) if i % every} for every in (many, 2 * many))]

    def within(self, limit):
        best = None
        for n, start in enumerate(self.starts()):
            for t in TARGETS:
                for share in SHARES:
                    self.new()
                    if not self.set(start):
                        continue
                    if self.lower(int(limit * t), share) or self.sketch.floor <= limit:
                        self.take_back(limit)
                        key = (self.sketch.cost, self.sketch.floor)
                        if best is None or key < best[0]:
                            best = key, dict(self.sketch.levels), (n, t, share)
        return best

    def program(self, levels):
        self.set(levels)
        return self.sketch.schedule.program()
