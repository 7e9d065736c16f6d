"""WithinBound: plans of one record that keep bounds of bytes, what the process takes for their calls counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

from singa_lite.common.unique import Unique
from singa_lite.compiler.byte_limit import ByteLimit, further_bytes, launch_bytes
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.lower import Sketched
from singa_lite.compiler.order.workspace import with_workspaces
from singa_lite.compiler.placed import Least, LimitError, Placed
from singa_lite.compiler.plan_variants import PlanVariants, has_more, seconds_of
from singa_lite.compiler.proof.check_rewrites import check_rewrites
from singa_lite.compiler.recompute.budget import HeldLevels, total_seconds
from singa_lite.compiler.recompute.recompute_for_clipping import STEP_TWICE, clipping_forms
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.graph.arena import StepDevice
from singa_lite.graph.budget_error import BudgetError, OverLimitError


class WithinBound(Unique):
    """Plans of a record for one bound after the other, and what they share.

    recorded: the record as a program; held: bytes of each block outside the arena; fuse: see `Graph`.
    """

    def __init__(self, recorded: Program, held: list[int], device: StepDevice, fuse: bool) -> None:
        self._recorded, self._held, self._device, self._fuse = recorded, held, device, fuse

    @cached_property
    def forms(self) -> PlanVariants:
        """Those of the record as it is."""
        return PlanVariants(self._recorded, fuse=self._fuse)

    def plan(self, bound: ByteLimit, plan_of: Callable[[Placed], MemoryPlan]) -> Placed:
        """A plan within the bound. BudgetError where none is found, which shows the least as `plan_of` makes it.

        What the process takes for its calls is known of the plan alone: where that is more than was left for it, the
        plan is searched for again with so much less, which ends, as each time more is left.
        """
        left = self._beside_process(bound)
        if left is not bound and self._keeps(bound, free := self.forms.usual.unlimited()) and not has_more(free):
            return with_workspaces(free, self._arena(left))
        try:
            placed = self._quickest(self._arena(left))
            while (needed := bound.beside(self._process_of(placed.planned))).process > left.process:
                left = needed
                placed = self._quickest(self._arena(left))
            return placed
        except LimitError as error:
            may_hold = bound.may_hold(self._held, error.least.arena_bytes, self._alignment)  # the pool's is an estimate
            found = [*([] if bound.device else [self.forms.usual.unlimited()]), error.least]
            least = min(found, key=lambda placed: self._total(bound, placed))  # a repeat may take more than it frees
            if may_hold or (not bound.device and self._keeps(bound, least)):
                return least
            raise _error(bound, self._total(bound, least), plan_of(least)) from None

    def check_keeps(self, bound: ByteLimit, placed: Placed, plan_of: Callable[[Placed], MemoryPlan]) -> None:
        """BudgetError for a plan that does not keep a bound, where no other is searched for."""
        if not self._keeps(bound, placed):
            raise _error(bound, self._total(bound, placed), plan_of(placed))

    def on_rung(self, bound: ByteLimit) -> ByteLimit:
        """A bound not above this one, within which a search takes half as long."""
        beside = self._beside_process(bound)
        rung = self.forms.usual.rung(self._arena(beside))
        return replace(bound, nbytes=min(bound.nbytes, beside.total(self._held, rung, self._alignment)))

    def sketched(self, bound: ByteLimit, start: HeldLevels | None, thrifty: bool = True) -> Sketched | None:
        """What the plan of a bound would be, from levels of another size of the batch; see `Lowering.sketched`."""
        return self.forms.sketched(self._arena(self._beside_process(bound)), start, thrifty)

    def time_bound(self, bound: ByteLimit) -> float:
        """A lower bound on the slowdown of any schedule within a bound; see `MemoryPlan.time_bound`."""
        limit = self._arena(self._beside_process(bound))
        least = min(variants.least_seconds(limit) for _, variants in self._forms())
        return least / total_seconds(self.forms.usual.without_limit()) - 1.0

    @property
    def _alignment(self) -> int:
        return self._device.runtime.alignment

    def _arena(self, bound: ByteLimit) -> int:
        """Bytes that a bound leaves for an arena."""
        return bound.arena(self._held, self._alignment)

    def _beside_process(self, bound: ByteLimit) -> ByteLimit:
        """What the bound leaves beside what the process takes for the calls as they would run."""
        return bound if bound.device else bound.beside(self._process_of(self.forms.usual.rewritten))

    def _process_of(self, program: Program) -> int:
        return process_bytes(self._device, program)

    def _keeps(self, bound: ByteLimit, placed: Placed) -> bool:
        """Whether a plan keeps the bound, what the process takes for its calls counted."""
        return self._total(bound, placed) <= bound.nbytes

    def _total(self, bound: ByteLimit, placed: Placed) -> int:
        """Bytes in all with this plan, as the bound counts them."""
        beside = bound.beside(self._process_of(placed.planned))
        return beside.total(self._held, placed.arena_bytes, self._alignment)

    def _quickest(self, limit: int) -> Placed:
        """The plan of the form that takes least time within a limit; LimitError where none of them keeps it.

        A step that is done twice is searched only where no other form keeps the limit.
        """
        found, least = list[Placed](), list[Least]()  # no errors: their frames would keep what the callers hold
        for form, lowering in self._forms():
            if found and form == STEP_TWICE:
                break
            try:
                placed = lowering.within(limit)
            except LimitError as error:
                least.append(error.found)
                continue
            if not form and not has_more(placed):
                return placed
            found.append(self._of_form(placed, form) if form else placed)
        if not found:
            raise LimitError(limit, Least.joined(least))
        return min(found, key=seconds_of) if found[1:] else found[0]

    def _of_form(self, placed: Placed, form: str) -> Placed:
        """The same plan, whose time is compared with that of the recorded form without a limit.

        PlanError where the form, which is no record, does something else than the record.
        """
        check_rewrites(self._recorded, placed.recorded)
        return placed.compared_with(self.forms.usual.without_limit(), form)

    def _forms(self) -> Iterator[tuple[str, PlanVariants]]:
        """Variants to plan: the record, "", and, if it clips by norm, those of `recompute_for_clipping.py`."""
        yield "", self.forms
        yield from self._clipping.items()

    @cached_property
    def _clipping(self) -> dict[str, PlanVariants]:
        forms = clipping_forms(self._recorded)
        return {name: PlanVariants(form, fuse=self._fuse) for name, form in forms.items()}


def _error(bound: ByteLimit, total: int, least: MemoryPlan) -> BudgetError:
    kind = OverLimitError if bound.device else BudgetError
    return kind(bound, total, least)


def process_bytes(device: StepDevice, program: Program) -> int:
    """What the process takes for a program's calls beyond what is promised; on a GPU none of it is the device's."""
    if device.runtime.is_asynchronous:
        return 0
    return launch_bytes(program.instructions, device.kernels.code_of)


def process_bytes_once_more(device: StepDevice, program: Program) -> int:
    """The same of one more form of it, beyond what is promised for that; 0 of what does not train."""
    if device.runtime.is_asynchronous:
        return 0
    return further_bytes(program.instructions, device.kernels.code_of)
