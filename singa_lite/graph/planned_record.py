"""PlannedRecord: a recorded step and its plans, in each order and within each bound that is asked for."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Protocol

from singa_lite.common import threads
from singa_lite.common.errors import GraphError
from singa_lite.common.packed import Packed
from singa_lite.compiler.byte_limit import ByteLimit, trains
from singa_lite.compiler.ir.collectives import digest
from singa_lite.compiler.ir.matching import RecordRule
from singa_lite.compiler.ir.operation import Role
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.target import Narrow, Target
from singa_lite.compiler.lower import Sketched, lower, unshared
from singa_lite.compiler.order.workspace import with_target_scratch
from singa_lite.compiler.pipeline import rewriting, run_passes
from singa_lite.compiler.placed import Placed
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.recompute.budget import HeldLevels
from singa_lite.compiler.report.memory_plan import MemoryPlan, Row
from singa_lite.compiler.rewrite.rules import ruled
from singa_lite.graph.arena import Arena, StepDevice
from singa_lite.graph.record import Record
from singa_lite.graph.within_bound import WithinBound, process_bytes, process_bytes_once_more
from singa_lite.kernels.kernel_set import KernelSet, tf32_of

ORDERS = ("recorded", "dependencies")


class DeviceRule(Protocol):
    """What `rewriting.Rule`, which lies above, says of itself."""

    def on(self, device: Any) -> RecordRule: ...


_ONE_ORDER = (
    "memory_budget: wanted order='recorded' beside it, as what is made again within a budget wants one order, received "
    "order='dependencies'"
)


class PlannedRecord(Record):
    """A recorded step that can be planned. device, arena, fuse, budget: see `Graph`."""

    def __init__(
        self, device: StepDevice, arena: Arena | None = None, fuse: bool = True, budget: int | None = None
    ) -> None:
        super().__init__()
        self.device = device
        self.fuse = fuse and os.environ.get("SINGA_LITE_FUSE", "") != "off"
        self.arena = arena if arena is not None else Arena(device)
        #: What the step is planned within; None: as many bytes as it takes.
        self.bound = None if budget is None else ByteLimit(budget)
        #: The order that it is planned and run in where none is asked for.
        self.order = "recorded"
        #: How many instructions run at the same time in the order "dependencies"; 1: each by all cores.
        self.workers = 1
        #: How activations are stored; None: as they were recorded.
        self.narrow: Narrow | None = None
        #: Whether factors of products are rounded to 10 bits, by kernels that do.
        self.tf32 = False
        #: By which the record is rewritten before anything else.
        self.rules: tuple[RecordRule, ...] = ()
        #: Once it is planned, which sums over processes it has, and in which order (`compiler/ir/collectives.py`).
        self.sums = 0
        #: Once it is planned, what the process takes for its calls, and for one more form of it, beyond the promise.
        self.process_bytes = self.further_bytes = 0
        #: What a net holds from step to step and this one does not use, where it is only asked about.
        self.unused_bytes = 0
        self._placed: dict[str, Packed[Placed]] = {}
        #: While the recorded order is asked for plans: what these share.
        self._lowering: WithinBound | None = None

    def rewrite(self, rule: DeviceRule) -> int:
        """Replace what a `rewriting.Rule` says wherever the record has it; returns how often that is.

        The record itself stays as it is, and the proof of the plan holds each replacement against it. Rules are applied
        in the order in which they were given, each once along the record. As the first plan does, the first rule
        decides which tensors are outputs: those that somebody holds now. GraphError for a graph that was planned or
        run already, RuleError for a rule that does not hold on this device.
        """
        if not hasattr(rule, "on"):
            raise TypeError(f"rewrite: wanted a rewriting.Rule, received {type(rule).__name__}")
        self._check_whole()
        if self._placed:
            raise GraphError("rewrite: wanted a graph that is not planned yet, rewrite it before its first run or plan")
        here = rule.on(self.device)
        self._hold()
        self._lowering = None
        before = len(ruled(self._recorded()).applied)
        self.rules = (*self.rules, here)
        return len(ruled(self._recorded()).applied) - before

    @property
    def memory_plan(self) -> MemoryPlan:
        """The plan of the order that it runs in; made now if the graph has not run yet."""
        return self.plan()

    def plan(self, order: str | None = None) -> MemoryPlan:
        """The plan for an order of running, see `run`. Nothing is allocated for it."""
        return self._plan_of(self._place(self.order if order is None else order))

    def rough_plan(self) -> MemoryPlan:
        """As `memory_plan`, but without exact search: the real arena lies between the floor and this one."""
        known = self._placed.get(self.order)
        return self._plan_of(self._lowered(self.order, search=False) if known is None else known.value)

    def plan_within(self, bound: ByteLimit | None) -> MemoryPlan:
        """The plan that a graph of this bound would have, whatever its own is. Many may be asked, one after the other.

        BudgetError where none is found. What they share is kept until `let_go`, or until the graph is to run.
        """
        return self._plan_of(self._lowered(self.order, bound=bound))

    def on_rung(self, bound: ByteLimit) -> ByteLimit:
        """A bound not above this one, within which a search takes half as long."""
        return self._searched().on_rung(bound)

    def sketched_within(self, bound: ByteLimit, start: HeldLevels | None, thrifty: bool = True) -> Sketched | None:
        """What the plan of a bound would be, from levels of another size of the batch; see `Lowering.sketched`."""
        return self._searched().sketched(bound, start, thrifty)

    def certified(self, plan: MemoryPlan) -> MemoryPlan:
        """The plan of this record with its `time_bound`, 0 without a limit of bytes; it takes seconds."""
        return plan.with_time_bound(0.0 if self.bound is None else self._searched().time_bound(self.bound))

    def _plan_of(self, placed: Placed) -> MemoryPlan:
        sizes = placed.rewritten.sizes
        rows = [
            Row(self._name(number), block.layer, self.role(number), sizes.get(number, block.nbytes), number)
            for number, block in enumerate(self.blocks)
            if number in sizes or self.role(number) is not Role.INTERMEDIATE
        ]
        process = process_bytes(self.device, placed.planned)
        return MemoryPlan(placed, [*rows, *self._made_rows(placed)], self.eager_bytes, process)

    def scratch_bytes(self) -> list[int]:
        """Of each operation, as it would run in the recorded order; nothing is placed for it."""
        self._check_whole()
        known = self._lowering
        rewritten = run_passes(self._recorded(), rewriting(self.fuse)) if known is None else known.forms.usual.rewritten
        return [instruction.scratch_bytes for instruction in rewritten.instructions]

    def _made_rows(self, placed: Placed) -> list[Row]:
        """The blocks that passes made."""
        rows = {}
        for instruction in (*placed.rewritten.instructions, *placed.planned.instructions):
            for operand in instruction.writes:
                number = operand.block
                if number >= len(self.blocks) and number not in placed.planned.host_sizes:
                    name = instruction.kernel if instruction.repeats is None else f"{instruction.kernel} again"
                    name = name if instruction.transfer is None else "offloaded, back"
                    rows[number] = Row(name, instruction.layer, Role.INTERMEDIATE, placed.planned.sizes[number], number)
        return list(rows.values())

    def _place(self, order: str) -> Placed:
        """The plan of an order; the first call decides which blocks are outputs, and holds them."""
        if order not in ORDERS:
            raise ValueError(f"order: wanted one of {ORDERS}, received {order!r}")
        if order not in self._placed:
            placed = self._lowered(order, bound=self.bound)
            self.process_bytes = process_bytes(self.device, placed.planned)
            self.further_bytes = process_bytes_once_more(self.device, placed.planned)
            self.sums = digest(placed.planned)
            self._placed[order] = placed.packed()
        return self._placed[order].value

    def _lowered(self, order: str, search: bool = True, bound: ByteLimit | None = None) -> Placed:
        """bound: which the plan keeps; never without exact search."""
        self._hold()
        asked_for = bound is not None and not bound.device
        if os.environ.get("SINGA_LITE_PLAN", "") == "off":
            if asked_for:
                raise PlanError("memory_budget: wanted a plan, received SINGA_LITE_PLAN=off, bytes for every block")
            return unshared(self._recorded(), fuse=self.fuse)
        if order == "dependencies":
            if asked_for:
                raise PlanError(_ONE_ORDER)
            placed = lower(self._recorded(), fuse=self.fuse, parallel=True, search=search)
            if bound is not None:
                self._lower().check_keeps(bound, placed, self._plan_of)
            return placed
        found = self._lower()
        return found.forms.usual.unlimited(search) if bound is None else found.plan(bound, self._plan_of)

    def _searched(self) -> WithinBound:
        """The plans of a whole record; PlanError where a plan within a bound is wanted in the order of dependencies."""
        if self.order != "recorded":
            raise PlanError(_ONE_ORDER)
        self._hold()
        return self._lower()

    def _hold(self) -> None:
        """Hold the outputs of a whole record."""
        self._check_whole()
        if not self._placed:
            self._hold_outputs()
        self._check_written()

    def _lower(self) -> WithinBound:
        if self._lowering is None:
            self._lowering = WithinBound(self._recorded(), self._sizes_outside_arena(), self.device, self.fuse)
        return self._lowering

    def _sizes_outside_arena(self) -> list[int]:
        """Bytes of each block outside the arena."""
        return [block.nbytes for n, block in enumerate(self.blocks) if self.role(n) is not Role.INTERMEDIATE]

    @property
    def trains(self) -> bool:
        """Whether it goes back."""
        return trains(self.instructions)

    def has_room_beside(self, arena: int) -> bool:
        """Whether its bound leaves room for all that it holds, with an arena that others need to be so large."""
        if self.bound is None:
            return True
        beside = self.bound.beside(self.memory_plan.process_bytes)
        return beside.leaves(self._sizes_outside_arena(), arena, self.device.runtime.alignment)

    def _recorded(self) -> Program:
        """The record as a program for the device."""
        runtime = self.device.runtime
        link = runtime.host_link if self.arena.offloads else None
        target = Target.of(self._kernels, runtime.alignment, link=link, narrow=self.narrow)
        if self.workers > 1:
            target = replace(target, lanes=self.workers, share=threads.threads() // self.workers)
        if self.rules:
            target = replace(target, rules=self.rules)
        program = self._program(target)
        return with_target_scratch(program) if self._kernels is not self.device.kernels else program

    @property
    def _kernels(self) -> KernelSet:
        """The device's, or those of them that round factors."""
        kernels = self.device.kernels
        return tf32_of(kernels) if self.tf32 else kernels
