"""BatchPlanner: what `fit` takes with batches of a size, before there is any; and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from singa_lite.bisection import bisected, crossing
from singa_lite.budget_curve import Point, curve
from singa_lite.budget_error import BudgetError
from singa_lite.errors import ShapeError
from singa_lite.graph import Graph
from singa_lite.memory.bound import Bound
from singa_lite.memory.pool import SEGMENT_BYTES
from singa_lite.memory.total import overhead
from singa_lite.memory_plan import MemoryPlan
from singa_lite.passes.carry import Chosen
from singa_lite.passes.lower import Sketched

#: So many sizes beyond the largest one found are looked at, as scratch may fall where the batch grows.
REACH = 64

Answer = TypeVar("Answer")


class Record(Protocol):
    """Records a step, "train", "evaluate" or "predict", for batches of a size, and asks something of the record."""

    def __call__(self, kind: str, size: int, ask: Callable[[Graph], Answer], budget: int | None = None, /) -> Answer:
        """The answer. Nothing runs. budget: bytes that the step is planned within, see `Steps.look`."""


class _Need(NamedTuple):
    """Bytes of a training step alone, from its rough plan. least, most: between which its arena is.

    held: of each block outside the arena. without_scratch: of the arena if no kernel needed any; scratch: of each
    operation. eager: as each operation is done at once. repeats: whether the plan repeats any.
    """

    least: int
    most: int
    held: list[int]
    without_scratch: int
    scratch: list[int]
    eager: int
    repeats: bool


class BatchPlanner:
    """Plans for one net as it is now.

    alignment: bytes, of the pool's regions; samples: how many there are to train with, which says how many are left
    for the last batch; None: any number may be.
    """

    def __init__(self, record: Record, alignment: int, samples: int | None = None) -> None:
        self._record = record
        self._alignment = alignment
        self._samples = samples
        self._needs: dict[int, _Need | None] = {}
        self._arenas: dict[int, int] = {}
        self._evaluations: dict[int, int] = {}
        self._eagers: dict[int, int] = {}

    def plan(self, size: int, budget: int | None = None) -> MemoryPlan:
        """The plan of the training step, whose total counts all that `fit` does. budget: see `Record`.

        Evaluation and the last, shorter batch share the arena, so only what the largest of them needs counts. A shorter
        batch needs more only where the kernels ask for more scratch; where the number of samples is not known, sizes
        near this one and its halves are looked at.
        """
        try:
            plan, scratch, bound = self._record(
                "train", size, lambda graph: (graph.memory_plan, graph.scratch_bytes(), graph.bound), budget
            )
        except BudgetError as error:
            raise self._of_fit(error, size) from None
        return self._whole(plan, scratch, bound, size, budget)

    def _of_fit(self, error: BudgetError, size: int) -> BudgetError:
        """The error of a training step, or that of its evaluation where this needs more than the least of the step."""
        least = error.total_bytes
        if not error.bound.device:
            try:
                self._whole(error.plan, [], Bound(least, error.bound.taken), size, least)
            except BudgetError as other:
                return BudgetError(Bound(error.budget, other.bound.taken), other.total_bytes, other.plan)
        return error

    def curve(self, size: int) -> list[Point]:
        """(bytes, estimated slowdown) of falling budgets, all made of one record; see `curve`."""

        def ask(graph: Graph) -> list[Point]:
            scratch = graph.scratch_bytes()

            def within(budget: int | None, exactly: bool = False) -> tuple[int, MemoryPlan]:
                bound = None if budget is None else Bound(budget)
                bound = bound if bound is None or exactly else graph.on_rung(bound)
                nbytes = None if bound is None else bound.nbytes
                try:
                    plan = graph.plan_within(bound)
                except BudgetError as error:
                    raise BudgetError(error.bound, self._of_fit(error, size).total_bytes, error.plan) from None
                try:
                    whole = self._whole(plan, scratch, bound, size, nbytes)
                except BudgetError as error:  # of an evaluation, whose time is not the step's
                    raise BudgetError(error.bound, error.total_bytes, plan) from None
                return whole.total_bytes if nbytes is None else nbytes, whole

            return curve(within)

        return self._record("train", size, ask)

    def _whole(
        self, plan: MemoryPlan, scratch: list[int], bound: Bound | None, size: int, budget: int | None
    ) -> MemoryPlan:
        """The plan with all that `fit` does beside. scratch: of its operations; bound: of its budget."""
        most = None if bound is None else bound.arena(plan.held_blocks, self._alignment)
        beside = self._beside(size, plan.arena_bytes, scratch, most, plan.recomputed > 0)
        if bound is None or most is None or beside["evaluation"] <= most:
            return plan.within_fit(beside, self._overhead(plan.held_blocks, plan.arena_bytes))
        evaluation, taken = self._evaluation_within(size, budget)
        beside["evaluation"] = evaluation.arena_bytes
        whole = plan.within_fit(beside, self._overhead(plan.held_blocks, plan.arena_bytes))
        if whole.total_bytes > bound.left:
            raise BudgetError(Bound(bound.nbytes, taken), whole.total_bytes + bound.taken, evaluation)
        return whole

    def _evaluation_within(self, size: int, budget: int | None) -> tuple[MemoryPlan, int]:
        """The plan of an evaluation within a budget, or the least one; and what is held beside it."""
        try:
            return self._record(
                "evaluate", size, lambda graph: (graph.memory_plan, graph.bound.taken if graph.bound else 0), budget
            )
        except BudgetError as error:
            if error.bound.device:
                raise
            return error.plan, error.bound.taken

    def largest(self, nbytes: int) -> int:
        """The largest batch size whose plan's total is at most `nbytes`; 0 if there is none.

        Totals do not always grow with the batch: so many sizes as REACH beyond the largest one found are looked at too.
        """
        size = self._beyond(self._bisected(nbytes), nbytes)
        while size and not self._fits(size, nbytes):
            size -= 1
        return size

    def largest_within(self, nbytes: int, extra_time: float) -> int:
        """The same within a budget, with repeats that slow the step by at most that share.

        Its own plan keeps to both, and that of the next size was searched for and does not. Which sizes are searched
        for is told by sketches, that go on from each other's levels.
        """
        free = self._bisected(nbytes)
        if not free and not self._keeps_to(1, nbytes, extra_time):
            return 0
        about = self._sketched(nbytes, extra_time, max(free, 1))
        size = bisected(lambda tried: self._keeps_to(tried, nbytes, extra_time), max(free, 1), None, lambda: about)
        return size if size > free else self.largest(nbytes)

    def _keeps_to(self, size: int, budget: int, extra_time: float) -> bool:
        """Whether a training step has a plan within the budget that is slowed by at most this share, and all else
        that `fit` does with this size has one too.
        """
        try:
            plan, scratch, bound = self._record(
                "train", size, lambda graph: (graph.memory_plan, graph.scratch_bytes(), graph.bound), budget
            )
            if plan.estimated_slowdown > extra_time:
                return False
            return self._whole(plan, scratch, bound, size, budget).total_bytes <= budget
        except (BudgetError, ShapeError):
            return False

    def _sketched(self, nbytes: int, extra_time: float, known: int) -> int:
        """The largest size that is likely to keep to both. known: one that does."""
        start: Chosen | None = None
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

    def _sketch(self, size: int, nbytes: int, start: Chosen | None) -> Sketched | None:
        try:
            return self._record("train", size, lambda graph: graph.sketched_within(Bound(nbytes), start))
        except ShapeError:
            return None

    def _bisected(self, nbytes: int) -> int:
        """A size whose step alone fits, while that of the next one does not; 0 if not even one sample's does."""

        def guess() -> int | None:
            totals = {size: self._total(n.held, n.least) for size, n in self._needs.items() if n is not None}
            return crossing(totals, nbytes)

        return bisected(lambda size: self._fits_alone(size, nbytes), 0, None, guess)

    def _beyond(self, fits: int, nbytes: int) -> int:
        """The largest size whose step alone fits, where none of the REACH sizes after it does."""
        size = fits + 1
        while size <= fits + REACH and self._may_fit(size, nbytes):
            if self._fits_alone(size, nbytes):
                fits = size
            size += 1
        return fits

    def _fits_alone(self, size: int, nbytes: int) -> bool:
        """Whether the training step fits. It is placed exactly only where the rough plan leaves a doubt."""
        need = self._need(size)
        if need is None:
            return False
        at_least, at_most = (self._total(need.held, arena) <= nbytes for arena in (need.least, need.most))
        if at_least == at_most and need.least >= SEGMENT_BYTES:  # else the pool may make up for a larger arena
            return at_most
        return self._total(need.held, self._arena(size, need)) <= nbytes

    def _fits(self, size: int, nbytes: int) -> bool:
        """Whether all that `fit` does with this size fits: `plan(size).total_bytes`."""
        need = self._need(size)
        if need is None or not self._fits_alone(size, nbytes):
            return False
        arena = self._arena(size, need)
        most = max(arena, *self._beside(size, arena, need.scratch, None, need.repeats).values())
        return self._total(need.held, arena) + most - arena <= nbytes

    def _may_fit(self, size: int, nbytes: int) -> bool:
        """Whether this size or a larger one would fit without scratch: what is left then grows with the batch."""
        need = self._need(size)
        return need is not None and sum(need.held) + need.without_scratch <= nbytes

    def _arena(self, size: int, need: _Need) -> int:
        """Bytes of the training step's arena."""
        if need.least == need.most:
            return need.least
        if size not in self._arenas:
            self._arenas[size] = self._record("train", size, lambda graph: graph.memory_plan.arena_bytes)
        return self._arenas[size]

    def _need(self, size: int) -> _Need | None:
        """Of a training step; None where it has more bytes than can be counted."""
        if size not in self._needs:
            try:
                self._needs[size] = self._record("train", size, self._measured)
            except ShapeError:
                self._needs[size] = None
        return self._needs[size]

    def _measured(self, graph: Graph) -> _Need:
        plan = graph.rough_plan()
        sizes = plan.floor_bytes, plan.arena_bytes, plan.held_blocks
        repeats = plan.recomputed > 0
        return _Need(*sizes, plan.floor_without_scratch_bytes, graph.scratch_bytes(), graph.eager_bytes, repeats)

    def _beside(
        self, size: int, arena: int, scratch: list[int], bound: int | None = None, repeats: bool = False
    ) -> dict[str, int]:
        """What other steps of `fit` need of the arena. arena, scratch: what the training step of this size needs.

        bound: of the arena, by a budget. Within one a shorter batch may take more than this one, as it repeats less, up
        to what the budget leaves. repeats: whether this one repeats something: without a bound a shorter one may
        repeat others, and so is planned.
        """
        needs = {"evaluation": self._evaluation(size)}
        for shorter in self._shorter(size):
            most = self._eager(shorter)
            if most <= arena:
                continue
            if bound is not None:
                needs[f"last batch of {shorter}"] = min(most, bound)
            elif repeats or _exceeds(self._scratch(shorter), scratch):
                need = self._need(shorter)
                if need is not None and need.most > arena:
                    needs[f"last batch of {shorter}"] = self._arena(shorter, need)
        return needs

    def _eager(self, size: int) -> int:
        """Bytes of a training step whose operations are done at once, above which no arena is."""
        need = self._needs.get(size)
        if need is not None:
            return need.eager
        if size not in self._eagers:
            self._eagers[size] = self._record("train", size, lambda graph: graph.eager_bytes)
        return self._eagers[size]

    def _scratch(self, size: int) -> list[int]:
        """Bytes of scratch of each operation of a training step."""
        need = self._needs.get(size)
        return self._record("train", size, lambda graph: graph.scratch_bytes()) if need is None else need.scratch

    def _evaluation(self, size: int) -> int:
        """Bytes of the arena of an evaluation that nothing bounds."""
        if size not in self._evaluations:
            self._evaluations[size] = self._record("evaluate", size, lambda graph: graph.memory_plan.arena_bytes)
        return self._evaluations[size]

    def _shorter(self, size: int) -> list[int]:
        """Sizes that the last batch of an epoch may have."""
        if self._samples is not None:
            left = self._samples % size
            return [left] if left else []
        return sorted({*_near(size)} | {*_halves(size)}, reverse=True)

    def _total(self, held: list[int], arena: int) -> int:
        return sum(held) + arena + self._overhead(held, arena)

    def _overhead(self, held: list[int], arena: int) -> int:
        return overhead(held, arena, self._alignment)


def _near(size: int) -> Iterator[int]:
    below = 1
    while below < size:
        yield size - below
        below *= 2


def _halves(size: int) -> Iterator[int]:
    while size > 1:
        size //= 2
        yield size


def _exceeds(scratch: list[int], known: list[int]) -> bool:
    """Whether an operation needs more scratch than the same one of the larger batch."""
    return len(scratch) != len(known) or any(one > other for one, other in zip(scratch, known, strict=True))
