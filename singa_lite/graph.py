"""Graph: a recorded step, planned once and replayed as often as wanted. Nothing runs while it is recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from singa_lite import threads
from singa_lite.arena import Arena, Executable
from singa_lite.arena import Pause as Pause
from singa_lite.budget_error import BudgetError, OverLimitError
from singa_lite.checks import flag, whole
from singa_lite.errors import GraphError
from singa_lite.memory.bound import Bound
from singa_lite.memory.problem import PlanError
from singa_lite.memory_plan import MemoryPlan, Row
from singa_lite.operation import Instruction, Role
from singa_lite.operation import Operation as Operation
from singa_lite.operation import Phase as Phase
from singa_lite.packed import Packed
from singa_lite.passes.carry import Chosen
from singa_lite.passes.forms import Forms, has_more, seconds_of
from singa_lite.passes.launch_bytes import launch_bytes
from singa_lite.passes.lower import Sketched, lower, unshared
from singa_lite.passes.pipeline import rewriting, through
from singa_lite.passes.placed import LimitError, Placed, prove
from singa_lite.passes.program import Program
from singa_lite.passes.repeats import Repeater
from singa_lite.passes.target import Narrow, Target
from singa_lite.passes.time_model import Cost, seconds
from singa_lite.passes.twice import clipping_forms
from singa_lite.peaks import peaks_of
from singa_lite.record import Record
from singa_lite.reports.dot import to_dot
from singa_lite.reports.profile import Peaks, Profile, measure
from singa_lite.same_record import same_up_to_names
from singa_lite.step_device import StepDevice
from singa_lite.tensor import Block

ORDERS = ("recorded", "dependencies")


class Graph(Record):
    """The operations of a step, recorded by `device.recording()`, and run as often as wanted.

    operations: in the order of recording. A block of bytes is an input, parameter or state if it had its bytes
    before, an output if somebody still holds a tensor over it when the graph first runs, else an intermediate:
    only these are placed in the arena, and their bytes may be used again within the step. fuse: whether operations
    may be replaced by equivalent ones that need less: the passes of `passes/pipeline.py` that rewrite;
    SINGA_LITE_FUSE=off says no for all graphs. budget: bytes that the step may take in all, with what the pool adds:
    values are dropped and made again so that the arena leaves room for the rest. None: as many as it takes.
    """

    def __init__(
        self, device: StepDevice, arena: Arena | None = None, fuse: bool = True, budget: int | None = None
    ) -> None:
        super().__init__()
        self.device = device
        self.fuse = fuse and os.environ.get("SINGA_LITE_FUSE", "") != "off"
        self.arena = arena if arena is not None else Arena(device)
        #: What the step is planned within; None: as many bytes as it takes.
        self.bound = None if budget is None else Bound(budget)
        #: Of its calls, by which repeats are chosen.
        self.cost: Cost = seconds
        #: How activations are stored; None: as they were recorded.
        self.narrow: Narrow | None = None
        #: Called before each run: whoever fills the inputs raises there if they are not filled.
        self.check_inputs: Callable[[], None] | None = None
        self._placed: dict[str, Packed[Placed]] = {}
        #: While the recorded order is asked for plans: what these share.
        self._lowering: Forms | None = None
        self._clipping: dict[str, Forms] | None = None
        self._executables: dict[str, Executable] = {}

    # ---- planning

    @property
    def memory_plan(self) -> MemoryPlan:
        """The plan of the recorded order; made now if the graph has not run yet."""
        return self.plan("recorded")

    def plan(self, order: str = "recorded") -> MemoryPlan:
        """The plan for an order of running, see `run`. Nothing is allocated for it."""
        return self._plan_of(self._place(order))

    def rough_plan(self) -> MemoryPlan:
        """As `memory_plan`, but without exact search: the real arena lies between the floor and this one."""
        known = self._placed.get("recorded")
        return self._plan_of(self._lowered("recorded", search=False) if known is None else known.value)

    def plan_within(self, bound: Bound | None) -> MemoryPlan:
        """The plan that a graph of this bound would have, whatever its own is. Many may be asked, one after the other.

        BudgetError where none is found. What they share is kept until `let_go`, or until the graph is to run.
        """
        return self._plan_of(self._lowered("recorded", bound=bound))

    def on_rung(self, bound: Bound) -> Bound:
        """A bound not above this one, within which a search takes half as long."""
        self._hold()
        held, alignment = self._held(), self.device.runtime.alignment
        beside = self._beside_process(bound)
        rung = self._lower().rung(beside.arena(held, alignment))
        return replace(bound, nbytes=min(bound.nbytes, beside.total(held, rung, alignment)))

    def sketched_within(self, bound: Bound, start: Chosen | None, thrifty: bool = True) -> Sketched | None:
        """What the plan of a bound would be, from levels of another size of the batch; see `Lowering.sketched`."""
        self._hold()
        beside = self._beside_process(bound)
        return self._lower().sketched(beside.arena(self._held(), self.device.runtime.alignment), start, thrifty)

    def _plan_of(self, placed: Placed) -> MemoryPlan:
        sizes = placed.rewritten.sizes
        rows = [
            Row(self._name(number), block.layer, self.role(number), sizes.get(number, block.nbytes), number)
            for number, block in enumerate(self.blocks)
            if number in sizes or self.role(number) is not Role.INTERMEDIATE
        ]
        process = self._process_bytes(placed.planned)
        return MemoryPlan(placed, [*rows, *self._made_rows(placed)], self.eager_bytes, process)

    def scratch_bytes(self) -> list[int]:
        """Of each operation, as it would run in the recorded order; nothing is placed for it."""
        self._check_whole()
        known = self._lowering
        rewritten = through(self._recorded(), rewriting(self.fuse)) if known is None else known.rewritten
        return [instruction.scratch_bytes for instruction in rewritten.instructions]

    def calls(self) -> list[Instruction]:
        """What it may do, as it would run in the recorded order, and what would make results of it again."""
        self._check_whole()
        rewritten = through(self._recorded(), rewriting(self.fuse))
        return [*rewritten.instructions, *Repeater(rewritten).repeats.values()]

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
            self._placed[order] = self._lowered(order, bound=self.bound).packed()
        return self._placed[order].value

    def _lowered(self, order: str, search: bool = True, bound: Bound | None = None) -> Placed:
        """bound: which the plan keeps; never without exact search."""
        self._hold()
        asked_for = bound is not None and not bound.device
        if os.environ.get("SINGA_LITE_PLAN", "") == "off":
            if asked_for:
                raise PlanError("memory_budget: wanted a plan, received SINGA_LITE_PLAN=off, bytes for every block")
            return unshared(self._recorded(), fuse=self.fuse)
        if order == "dependencies" and asked_for:
            raise PlanError(
                "run(order='dependencies'): wanted no memory_budget, as values that are made again need one order"
            )
        if order == "dependencies":
            return lower(self._recorded(), fuse=self.fuse, parallel=True)
        return self._lower().within(None, search) if bound is None else self._within(bound)

    def _hold(self) -> None:
        """Hold the outputs of a whole record."""
        self._check_whole()
        if not self._placed:
            self._hold_outputs()
        self._check_written()

    def _lower(self) -> Forms:
        if self._lowering is None:
            self._lowering = Forms(self._recorded(), fuse=self.fuse)
        return self._lowering

    def _within(self, bound: Bound) -> Placed:
        """A plan within the bound. BudgetError where none is found.

        What the process takes for its calls is known of the plan alone: where that is more than was left for it, the
        plan is searched for again with so much less, which ends, as each time more is left.
        """
        held, alignment = self._held(), self.device.runtime.alignment
        left = self._beside_process(bound)
        if left is not bound and self._keeps(bound, free := self._lower().within(None, True)) and not has_more(free):
            return free
        try:
            placed = self._quickest(left.arena(held, alignment))
            while (needed := bound.beside(self._process_bytes(placed.planned))).process > left.process:
                left = needed
                placed = self._quickest(left.arena(held, alignment))
            return placed
        except LimitError as error:
            may_hold = bound.may_hold(held, error.least.arena_bytes, alignment)  # what the pool adds is an estimate
            found = [error.least, *([] if left is bound else [self._lower().within(None, True)])]
            least = min(found, key=lambda placed: self._total(bound, placed))  # a repeat may take more than it frees
            if may_hold or (left is not bound and self._keeps(bound, least)):
                return least
            raise self._budget_error(bound, least) from None

    def _beside_process(self, bound: Bound) -> Bound:
        """What the bound leaves beside what the process takes for the calls as they would run."""
        return bound if bound.device else bound.beside(self._process_bytes(self._lower().rewritten))

    def _process_bytes(self, program: Program) -> int:
        """What the process takes for its calls beyond what is promised; on a GPU none of it is the device's."""
        if self.device.runtime.link.beside:
            return 0
        return launch_bytes(program.instructions, self.device.kernels.code_bytes)

    def _keeps(self, bound: Bound, placed: Placed) -> bool:
        """Whether a plan keeps the bound, what the process takes for its calls counted."""
        return self._total(bound, placed) <= bound.nbytes

    def _total(self, bound: Bound, placed: Placed) -> int:
        """Bytes in all with this plan."""
        beside = bound.beside(self._process_bytes(placed.planned))
        return beside.total(self._held(), placed.arena_bytes, self.device.runtime.alignment)

    def _quickest(self, limit: int) -> Placed:
        """The plan of the form that takes least time within a limit; LimitError where none of them keeps it."""
        found, missed = list[Placed](), list[LimitError]()
        for form, lowering in self._forms():
            try:
                placed = lowering.within(limit)
            except LimitError as error:
                missed.append(error)
                continue
            if not form and not has_more(placed):
                return placed
            found.append(self._told(placed, form) if form else placed)
        if not found:
            raise min(missed, key=lambda error: error.least.arena_bytes)
        return min(found, key=seconds_of) if found[1:] else found[0]

    def _told(self, placed: Placed, form: str) -> Placed:
        """The same plan, whose time is told beside that of the recorded form without a limit."""
        planned = replace(placed.planned, free=())
        return replace(placed, form=form, planned=planned, free=self._lower().without_limit())

    def _forms(self) -> Iterator[tuple[str, Forms]]:
        """As it was recorded, "", and the forms of `passes/twice.py`, if it clips gradients by their norm."""
        yield "", self._lower()
        if self._clipping is None:
            others = clipping_forms(self._recorded())
            self._clipping = {name: Forms(form, fuse=self.fuse) for name, form in others.items()}
        yield from self._clipping.items()

    def _held(self) -> list[int]:
        """Bytes of each block outside the arena."""
        return [block.nbytes for n, block in enumerate(self.blocks) if self.role(n) is not Role.INTERMEDIATE]

    def _budget_error(self, bound: Bound, least: Placed) -> BudgetError:
        total = self._total(bound, least)
        kind = OverLimitError if bound.device else BudgetError
        return kind(bound, total, self._plan_of(least))

    def has_room_beside(self, arena: int) -> bool:
        """Whether its bound leaves room for all that it holds, with an arena that others need to be so large."""
        if self.bound is None:
            return True
        beside = self.bound.beside(self.memory_plan.process_bytes)
        return beside.leaves(self._held(), arena, self.device.runtime.alignment)

    def blocks_with_bytes(self) -> list[Block]:
        """The blocks outside the arena that have their bytes: outputs have them once the step is bound."""
        held = [block.held for block in self.blocks if block.held is not None]
        return [block for block in (*held, *self._fresh.values()) if block.memory is not None]

    def let_go(self) -> None:
        """Hold no block any more, as the step is not to run: the graph itself may live until garbage is collected."""
        self._lowering = self._clipping = None
        for block in self.blocks:
            block.held = None
        self._fresh.clear()

    def retire(self) -> None:
        """Hold no bytes any more, as the step is not to run again; its plan can still be asked for."""
        self._executables.clear()
        self.let_go()

    def _recorded(self) -> Program:
        """The record as a program for the device."""
        runtime = self.device.runtime
        link = runtime.link if self.arena.offload else None
        return self._program(
            Target.of(self.device.kernels, runtime.alignment, link=link, cost=self.cost, narrow=self.narrow)
        )

    # ---- running

    def prepare(self, order: str = "recorded") -> None:
        """Plan, prove and bind now what the first `run` in this order would."""
        self._executable(order).prepare()

    def run(self, order: str = "recorded", pause: Pause | None = None) -> None:
        """Replay the step. The first run plans it, proves the plan and binds every launch to its bytes.

        order: "recorded" (or an equivalent one that needs less memory), or "dependencies": wave by wave, by a plan
        that would also hold if the operations of a wave ran at the same time. The results are equal, bit for bit.
        pause: where to wait for others who still read what the step will overwrite.
        """
        if self.check_inputs is not None:
            self.check_inputs()
        executable = self._executables.get(order)
        if executable is None or self.device.graph is not None:
            executable = self._executable(order)
        executable.run(pause)

    def profile(self, runs: int = 10, *, peaks: bool = True) -> Profile:
        """Time each operation of the planned step by itself: the median over `runs`, at least 1, in seconds.

        The step really runs; behind it parameters, state, outputs and counters are what they were, from copies on the
        host. peaks: measure what a product of matrices
        and a copy reach here, too, which takes some tenths of a second the first time; each operation is then told as a
        share of both.
        """
        runs = whole("profile: runs", runs, 1)
        peaks = flag("profile: peaks", peaks)
        if self.check_inputs is not None:
            self.check_inputs()
        executable = self._executable("recorded")
        threads.settle()
        found = peaks_of(self.arena) if peaks else None
        return self.arena.turn.run(self._measured, executable, runs, found)

    def _measured(self, executable: Executable, runs: int, peaks: Peaks | None) -> Profile:
        self.arena.reserve(executable)  # the peaks may have been measured in its place
        planned = executable.placed.planned
        instructions, variant = planned.instructions, planned.target.variant
        variants = [variant(i.kernel, i.operands, i.settings) for i in instructions]
        with self.device.runtime.here():
            before = executable.written()
            try:
                return measure(instructions, executable.launches(), runs, self.device.synchronize, peaks, variants)
            finally:
                executable.write_back(before)

    def _executable(self, order: str) -> Executable:
        if not self.recording and self.device.graph is not None:
            raise GraphError("run: wanted no recording on this device meanwhile; run the graph before or after it")
        if order not in self._executables:
            placed = self._place(order)
            self._lowering = self._clipping = None
            prove(placed, {number: block.name for number, block in enumerate(self.blocks)})
            for block in self._fresh.values():
                if block.memory is None:
                    self.device.bind(block)
            held = {number: b.held for number, b in enumerate(self.blocks) if b.held is not None} | self._fresh
            checked = os.environ.get("SINGA_LITE_CHECKED", "") == "1"
            packed = self._placed[order]
            self._executables[order] = Executable(packed, self.arena, held, checked)
            packed.pack()
            self.pack()
        return self._executables[order]

    def equals(self, other: Graph) -> bool:
        """Whether the other record has the same operations, in the same order, on tensors of the same shapes, dtypes
        and strides that hang together in the same way: the two are equal up to names.

        Phases and settings count, names of layers and tensors and values do not; nor does which device it is. What a
        tensor is to the step (`role`) counts too. TypeError for what is no graph, GraphError while one of them records.
        """
        if not isinstance(other, Graph):
            raise TypeError(f"equals: wanted a Graph, received {type(other).__name__}")
        if self.recording or other.recording:
            raise GraphError("equals: wanted graphs whose recording is finished, leave its with block first")
        return same_up_to_names(self, other)

    def to_dot(self) -> str:
        """The record in the language of Graphviz: operations colored by phase, and what each directly depends on."""
        return to_dot(self.instructions, [self._name(number) for number in range(len(self.blocks))])

    def __repr__(self) -> str:
        state = "recording" if self.recording else "failed" if self.failed else "recorded"
        return f"<Graph {state}, {self.count} operations, {len(self.blocks)} blocks>"
