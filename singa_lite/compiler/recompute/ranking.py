"""Ranking: which values to drop next, by the bytes above a limit that they free a second that they cost."""

from __future__ import annotations

import numpy as np

from singa_lite.compiler.recompute.live_bytes_model import LiveBytesModel
from singa_lite.compiler.recompute.repeats import KEPT


class Ranking:
    """The candidates of a sketch. What each costs by itself is remembered until what it depends on is dropped."""

    def __init__(self, sketch: LiveBytesModel) -> None:
        self._sketch = sketch
        self._of = of = sketch.of
        self._blocks = sorted(of.candidates)
        self._index = {block: index for index, block in enumerate(self._blocks)}
        gaps = [of.candidates[block] for block in self._blocks]
        self._before = np.array([gap.before for gap in gaps], np.int64)
        self._behind = np.array([gap.behind for gap in gaps], np.int64)
        self._sizes = np.array([sketch.sizes[block] for block in self._blocks], np.int64)
        self._costs = np.ones(len(gaps), np.int64)
        self._depending: dict[int, set[int]] = {}
        self._dropped: set[int] = set()
        self._stale = set(self._blocks)

    def best(self, level: int, limit: int, others: set[int]) -> list[int]:
        """Blocks that may be raised to this level from the one below, the best first; without those of `others`."""
        levels = self._sketch.levels
        fitting = [b for b in self._blocks if levels.get(b, KEPT) == level - 1 and b not in others]
        index = np.array([self._index[block] for block in fitting], np.int64)
        scores = self._freed(limit)[index] / self.costs()[index]
        return [fitting[at] for at in np.argsort(-scores, kind="stable") if scores[at] > 0]

    def by_cost(self) -> list[int]:
        """The blocks that are dropped, the costliest first."""
        costs = self.costs()
        return sorted(self._sketch.levels, key=lambda block: (-costs[self._index[block]], block))

    def costs(self) -> np.ndarray:
        """Of making each candidate again where it is first read behind its gap, if no copy of another was there."""
        now = set(self._sketch.levels)
        for block in now ^ self._dropped:
            self._stale |= self._depending.get(block, set())
        self._dropped = now
        for block in self._stale:
            self._costs[self._index[block]] = max(1, self._cost(block))
        self._stale = set()
        return self._costs

    def _freed(self, limit: int) -> np.ndarray:
        """Of each candidate: its bytes, as often as a step or an insert of its gap has more live bytes than `limit`."""
        over = self._sketch.over(limit)
        sums = np.concatenate(([0], np.cumsum(over)))
        freed: np.ndarray = self._sizes * np.maximum(sums[self._behind] - sums[self._before + 1], 0)
        return freed

    def _cost(self, block: int) -> int:
        now = self._of.candidates[block].behind
        needed = self._of.chain([block], lambda other: self._is_absent(other, block, now))
        return sum(self._sketch.costs[step] for step in needed)

    def _is_absent(self, other: int, block: int, now: int) -> bool:
        """Whether `other` is not there at step `now`; noted as what `block` depends on."""
        last = self._of.passing.get(other)
        if last is not None:
            return last < now
        self._depending.setdefault(other, set()).add(block)
        return other in self._dropped and self._of.candidates[other].before < now
