"""BatchPlanner: what `fit` takes with batches of a size, before there is any; and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Mapping

from singa_lite.common.bisection import bisected, crossing
from singa_lite.common.errors import ShapeError
from singa_lite.compiler.byte_limit import ByteLimit
from singa_lite.compiler.lower import Sketched
from singa_lite.compiler.recompute.carry import HeldLevels
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.graph.budget_error import BudgetError
from singa_lite.graph.graph import Graph
from singa_lite.net.budget_curve import Point, curve
from singa_lite.net.fit_memory import FitNeeds, Record

#: So many sizes beyond the largest one found are looked at, as scratch may fall where the batch grows.
REACH = 64


class BatchPlanner:
    """Plans for one net as it is now. alignment, samples, kinds: as for `FitNeeds`."""

    def __init__(self, record: Record, alignment: int, samples: int | None, kinds: Mapping[str, str]) -> None:
        self._record = record
        self._alignment = alignment
        self._needs = FitNeeds(record, alignment, samples, kinds)

    # ---- plans

    def plan(self, size: int, budget: int | None = None) -> MemoryPlan:
        """The plan of the training step, whose total counts all that `fit` does. budget: see `Record`.

        Evaluation and the last, shorter batch share the arena, so only what the largest of them needs counts. A shorter
        batch needs more only where the kernels ask for more scratch; where the number of samples is not known, sizes
        near this one and its halves are looked at.
        """
        try:
            plan, scratch, bound, unused = self._step(size, budget)
        except BudgetError as error:
            raise self._of_fit(error, size) from None
        return self._whole(plan, scratch, bound, size, budget).within_net(unused)

    def _step(self, size: int, budget: int | None) -> tuple[MemoryPlan, list[int], ByteLimit | None, int]:
        """Of a training step: the plan, the scratch of its operations, what it is bounded by, and `unused_bytes`."""

        def ask(graph: Graph) -> tuple[MemoryPlan, list[int], ByteLimit | None, int]:
            return graph.memory_plan, graph.scratch_bytes(), graph.bound, graph.unused_bytes

        return self._record("train", size, ask, budget)

    def _of_fit(self, error: BudgetError, size: int) -> BudgetError:
        """The error of a training step, or of what else `fit` does where that needs more than the least of the step."""
        least = error.total_bytes
        if not error.bound.device:
            try:
                self._whole(error.plan, [], ByteLimit(least, error.bound.taken), size, least)
            except BudgetError as other:
                return BudgetError(ByteLimit(error.budget, other.bound.taken), other.total_bytes, other.plan)
        return error

    def curve(self, size: int) -> list[Point]:
        """(bytes, estimated slowdown) of falling budgets, all made of one record; see `curve`."""

        def ask(graph: Graph) -> list[Point]:
            scratch = graph.scratch_bytes()

            def within(budget: int | None, exactly: bool = False) -> tuple[int, MemoryPlan]:
                bound = None if budget is None else ByteLimit(budget, graph.unused_bytes)
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
                return whole.within_net(graph.unused_bytes).total_bytes if nbytes is None else nbytes, whole

            return curve(within)

        return self._record("train", size, ask)

    def _whole(
        self, plan: MemoryPlan, scratch: list[int], bound: ByteLimit | None, size: int, budget: int | None
    ) -> MemoryPlan:
        """The plan with all that `fit` does beside. scratch: of its operations; bound: of its budget."""
        most = None if bound is None else bound.beside(plan.process_bytes).arena(plan.held_blocks, self._alignment)
        beside = self._needs.beside(size, plan.arena_bytes, scratch, most, plan.recomputed > 0)
        if bound is None or most is None:
            return self._with(plan, beside)
        least, taken = plan, bound.taken
        for name, kind in self._needs.kinds.items():
            if beside[name] > most:
                least, taken = self._other_within(kind, size, budget)
                beside[name] = least.arena_bytes
        whole = self._with(plan, beside)
        if whole.total_bytes > bound.left:
            raise BudgetError(ByteLimit(bound.nbytes, taken), whole.total_bytes + bound.taken, least)
        for shorter in self._needs.doubtful(size, scratch, most):
            self._step(shorter, budget)
        return whole

    def _with(self, plan: MemoryPlan, beside: Mapping[str, int]) -> MemoryPlan:
        """The plan with what the pool adds where the arena is as large as the largest of all needs it."""
        arena = max(plan.arena_bytes, *beside.values())
        return plan.within_fit(beside, self._needs.overhead(plan.held_blocks, arena))

    def _other_within(self, kind: str, size: int, budget: int | None) -> tuple[MemoryPlan, int]:
        """The plan of a step of another kind within a budget, or the least one; and what is held beside it."""
        try:
            return self._record(
                kind, size, lambda graph: (graph.memory_plan, graph.bound.taken if graph.bound else 0), budget
            )
        except BudgetError as error:
            if error.bound.device:
                raise
            return error.plan, error.bound.taken

    # ---- the largest batch

    def largest(self, nbytes: int) -> int:
        """The largest batch size whose plan's total is at most `nbytes`; 0 if there is none.

        Totals do not always grow with the batch: so many sizes as REACH beyond the largest one found are looked at too.
        """
        size = self._beyond(self._bisected(nbytes), nbytes)
        while size and not self._needs.fits(size, nbytes):
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
        """True if a training step has a plan within the budget and extra time, and all else of `fit` with this size
        keeps the budget.
        """
        try:
            plan, scratch, bound, unused = self._step(size, budget)
            if plan.estimated_slowdown > extra_time:
                return False
            return self._whole(plan, scratch, bound, size, budget).total_bytes <= budget - unused
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
            return self._record(
                "train", size, lambda graph: graph.sketched_within(ByteLimit(nbytes, graph.unused_bytes), start)
            )
        except ShapeError:
            return None

    def _bisected(self, nbytes: int) -> int:
        """A size whose step alone fits, while that of the next one does not; 0 if not even one sample's does."""

        def guess() -> int | None:
            known = self._needs.known.items()
            return crossing({size: self._needs.total(n.held, n.least) + n.apart for size, n in known if n}, nbytes)

        return bisected(lambda size: self._needs.fits_alone(size, nbytes), 0, None, guess)

    def _beyond(self, fits: int, nbytes: int) -> int:
        """The largest size whose step alone fits, where none of the REACH sizes after it does."""
        size = fits + 1
        while size <= fits + REACH and self._needs.may_fit(size, nbytes):
            if self._needs.fits_alone(size, nbytes):
                fits = size
            size += 1
        return fits
