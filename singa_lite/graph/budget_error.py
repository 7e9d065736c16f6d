"""BudgetError: a budget in which no plan was found, the least there is, what holds its peak, and what would help."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.compiler.byte_limit import ByteLimit
from singa_lite.compiler.ir.operation import Role
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.compiler.report.plan_rows import PlacedRow
from singa_lite.runtime.pool_numbers import OutOfMemoryError, in_words

#: Blocks of the peak that the message names.
_NAMED = 5


class BudgetError(PlanError):
    """A budget in which no plan was found. budget: its bytes; total_bytes: the least that was found, all counted; plan:
    that plan; remedies: what would take less, in words, each with its bytes.
    """

    def __init__(self, bound: ByteLimit, total_bytes: int, plan: MemoryPlan, remedies: Sequence[str] = ()) -> None:
        super().__init__(bound, total_bytes, plan, remedies)
        self.bound, self.budget, self.total_bytes, self.plan = bound, bound.nbytes, total_bytes, plan
        self.remedies = tuple(remedies)

    def with_remedies(self, remedies: Sequence[str]) -> BudgetError:
        """The same error, which says what would help."""
        return type(self)(self.bound, self.total_bytes, self.plan, remedies)

    def __str__(self) -> str:
        """What was wanted, what the least is, of what it is made, and what would help."""
        least = f"the least found is {self.total_bytes:,} bytes ({self.total_bytes / 2**20:.2f} MiB)"
        would_help = f". What would help: {'; '.join(self.remedies)}" if self.remedies else ""
        return f"{self._request_text()}, {least}: {self._composition()}{would_help}"

    def _request_text(self) -> str:
        return f"memory_budget: wanted at most {self.budget:,} bytes in all"

    def _composition(self) -> str:
        outside = {role: n for role, n in self.plan.by_role.items() if n and role != Role.INTERMEDIATE}
        held = [f"{role} {_mib(nbytes)}" for role, nbytes in outside.items()]
        if self.bound.taken:
            held.append(f"held beside the step {_mib(self.bound.taken)}")
        peak = ", ".join(_in_words(row) for row in self.plan.at_peak()[:_NAMED])
        process = 0 if self.bound.device else self.plan.process_bytes
        pool = self.total_bytes - self.bound.taken - self.plan.total_bytes + self.plan.process_bytes - process
        held += [f"the process for {self.plan.operations:,} operations {_mib(process)}"] if process else []
        held += [f"what the pool adds {_mib(pool)}", f"and an arena of {_mib(self.plan.arena_bytes)}"]
        return ", ".join(held) + (f", whose peak holds {peak}" if peak else "")


class OverLimitError(BudgetError, OutOfMemoryError):
    """A device's limit within which no plan was found; the same words, and the fields of the pool's own error."""

    def __init__(self, bound: ByteLimit, total_bytes: int, plan: MemoryPlan, remedies: Sequence[str] = ()) -> None:
        BudgetError.__init__(self, bound, total_bytes, plan, remedies)
        self.asked, self.used, self.free, self.limit = total_bytes - bound.taken, bound.taken, 0, bound.nbytes

    __str__ = BudgetError.__str__

    def _request_text(self) -> str:
        others = f"{in_words(self.used)} of it used by others"
        return f"device {self.bound.device}, limit: {in_words(self.limit)}, {others}: wanted a step that fits"


def _in_words(row: PlacedRow) -> str:
    place = f"{row.layer} {row.name}" if row.layer else row.name
    return f"{place} ({row.kind}) {_mib(row.nbytes)}"


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.2f} MiB" if nbytes >= 2**20 // 100 else f"{nbytes:,} bytes"
