"""LargestBatch: the largest batch size that fits into so many bytes, without repeats or with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isfinite

from singa_lite.common.errors import ShapeError
from singa_lite.compiler.byte_limit import ByteLimit
from singa_lite.compiler.lower import Sketched
from singa_lite.compiler.recompute.budget import HeldLevels
from singa_lite.graph.budget_error import BudgetError
from singa_lite.net.batch_memory import BatchMemory
from singa_lite.runtime.pool import SEGMENT_BYTES

#: So many sizes beyond the largest one found are tried too, as scratch may fall where the batch grows.
REACH = 64


class LargestBatch:
    """The search for the largest batch of a net. memory: its plans by batch size."""

    def __init__(self, memory: BatchMemory) -> None:
        self._memory = memory

    def without_repeats(self, nbytes: int) -> int:
        """The largest batch size whose plan's total is at most `nbytes`; 0 if there is none.

        Totals do not always grow with the batch: so many sizes as REACH beyond the largest one found are tried too.
        """
        size = self._largest_alone(nbytes)
        tried = size + 1
        while tried <= size + REACH and self._may_fit(tried, nbytes):
            size = tried if self._fits_alone(tried, nbytes) else size
            tried += 1
        while size and not self._fits(size, nbytes):
            size -= 1
        return size

    def with_repeats(self, nbytes: int, extra_time: float) -> int:
        """The largest within a budget, with repeats that slow the step by at most that share.

        Its own plan keeps to both, and that of the next size was searched for and does not. Which sizes are searched
        for is estimated by sketches, that go on from each other's levels.
        """
        free = self._largest_alone(nbytes)
        if not free and not self._keeps_to(1, nbytes, extra_time):
            return 0
        about = self._sketched(nbytes, extra_time, max(free, 1))
        size = bisected(lambda tried: self._keeps_to(tried, nbytes, extra_time), max(free, 1), None, lambda: about)
        return size if size > free else self.without_repeats(nbytes)

    def _keeps_to(self, size: int, budget: int, extra_time: float) -> bool:
        """True if a training step has a plan within the budget and extra time, and all else of `fit` with this size
        keeps the budget.
        """
        try:
            plan, scratch, bound, unused = self._memory.step_plan(size, budget)
            if plan.estimated_slowdown > extra_time:
                return False
            return self._memory.fit_plan(plan, scratch, bound, size, budget).total_bytes <= budget - unused
        except (BudgetError, ShapeError):
            return False

    def _sketched(self, nbytes: int, extra_time: float, known: int) -> int:
        """The largest size that is likely to keep to both. known: one that does."""
        start: HeldLevels | None = None
        slowdowns, is_on_line = {known: 0.0}, True

        def keeps(size: int) -> bool:
            nonlocal start, is_on_line
            found = self._sketch(size, nbytes, start)
            is_on_line = found is not None
            if found is None:
                return False
            start, slowdowns[size] = found.chosen or start, found.slowdown
            return found.slowdown <= extra_time

        def guess() -> int | None:
            crossed = crossing(slowdowns, extra_time)
            if not is_on_line:
                return None
            return known + max(1, known // 2) if crossed is None else min(crossed, 2 * max(slowdowns))

        return bisected(keeps, known, None, guess)

    def _sketch(self, size: int, nbytes: int, start: HeldLevels | None) -> Sketched | None:
        try:
            return self._memory.record(
                "train", size, lambda graph: graph.sketched_within(ByteLimit(nbytes, graph.unused_bytes), start)
            )
        except ShapeError:
            return None

    def _largest_alone(self, nbytes: int) -> int:
        """A size whose step alone fits, while that of the next one does not; 0 if not even one sample's does."""

        def guess() -> int | None:
            needs = self._memory.known_needs()
            return crossing({size: self._memory.total(n.held, n.least) + n.apart for size, n in needs.items()}, nbytes)

        return bisected(lambda size: self._fits_alone(size, nbytes), 0, None, guess)

    def _fits_alone(self, size: int, nbytes: int) -> bool:
        """Whether the training step fits. It is placed exactly only where the rough plan leaves a doubt."""
        need = self._memory.need(size)
        if need is None:
            return False
        left = nbytes - need.apart
        at_least, at_most = (self._memory.total(need.held, arena) <= left for arena in (need.least, need.most))
        if at_least == at_most and need.least >= SEGMENT_BYTES:  # else the pool may make up for a larger arena
            return at_most
        return self._memory.total(need.held, self._memory.arena_of(size, need)) <= left

    def _fits(self, size: int, nbytes: int) -> bool:
        """Whether all that `fit` does with this size fits: the total of its plan."""
        need = self._memory.need(size)
        if need is None or not self._fits_alone(size, nbytes):
            return False
        arena = self._memory.arena_of(size, need)
        most = max(arena, *self._memory.other_steps(size, arena, need.scratch, None, need.repeats).values())
        return self._memory.total(need.held, most) <= nbytes - need.apart

    def _may_fit(self, size: int, nbytes: int) -> bool:
        """Whether this size or a larger one would fit without scratch: what is left then grows with the batch."""
        need = self._memory.need(size)
        return need is not None and sum(need.held) + need.without_scratch <= nbytes - need.apart


#: What a first guess may be beyond a size that is known to fit, in times of it.
FAR = 64


def bisected(
    fits: Callable[[int], bool], known: int, too_many: int | None = None, guess: Callable[[], int | None] | None = None
) -> int:
    """A size that fits while the next one does not.

    known: one that fits, or 0; too_many: one that does not, else sought by doubling; guess: what the answer may be,
    asked anew each time. A good guess is tried, and its neighbour; a guess beyond what is left is none, and every third
    try halves what is left all the same.
    """
    tries = 0
    while too_many is None or too_many - known > 1:
        tries += 1
        guessed = guess() if guess is not None and tries % 3 else None
        tried = max(1, 2 * known) if too_many is None else (known + too_many) // 2
        if guessed is not None and known - 1 <= guessed and (too_many is None or guessed <= too_many + 1):
            most = FAR * max(1, known) if too_many is None else too_many - 1
            tried = max(known + 1, min(guessed, most))
        known, too_many = (tried, too_many) if fits(tried) else (known, tried)
    return known


def crossing(values: Mapping[int, float], wanted: float) -> int | None:
    """The size at which a value would be `wanted`, by the line through the two sizes whose values are nearest to it.

    None where no line rises through two of them, or none so far that it can be counted.
    """
    nearest = sorted(values, key=lambda size: (abs(values[size] - wanted), size))[:2]
    if len(nearest) < 2:
        return None
    one, other = nearest
    slope = (values[one] - values[other]) / (one - other)
    found = one + (wanted - values[one]) / slope if slope > 0 else inf
    return int(found) if isfinite(found) else None
