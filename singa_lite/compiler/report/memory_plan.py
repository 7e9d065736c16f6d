"""MemoryPlan: what a placed step takes, what it would take otherwise, and who is live at the peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from singa_lite.common import checks
from singa_lite.compiler.ir.collectives import most_in_flight
from singa_lite.compiler.ir.operation import Role
from singa_lite.compiler.ir.program import host_requests, lifespans, live_bytes, requests
from singa_lite.compiler.ir.time_model import flops
from singa_lite.compiler.placed import Placed, prove
from singa_lite.compiler.placement.check import check
from singa_lite.compiler.proof.errors import request_labels
from singa_lite.compiler.recompute.budget import estimated_slowdown, is_free
from singa_lite.compiler.report import plan_page
from singa_lite.compiler.report.net_drawing import Drawable
from singa_lite.compiler.report.plan_rows import (
    AGAIN,
    SUM,
    PlacedRow,
    RepeatRow,
    VariantRow,
    bytes_by_class,
    called,
    repeat_rows,
    variant_lines,
    variant_rows,
)


class Row(NamedTuple):
    """A block of the step, as it was recorded or rewritten."""

    name: str
    layer: str
    role: Role
    nbytes: int
    number: int


class MemoryPlan:
    """The plan of a recorded step.

    arena_bytes: of the arena, which holds every intermediate and all scratch. floor_bytes: the largest sum of live
    bytes in the chosen order; no arena is smaller. recorded_floor_bytes: the same for the step as recorded, before any
    pass. unshared_bytes: of the step as recorded, the sum with bytes of its own for each block and all scratch.
    eager_bytes: the high water of doing each operation at once. by_role: {role: bytes}, of the blocks outside the arena
    as they are, of the intermediates their sum. gains: {pass: bytes by which it lowered the floor}. rows: what lies in
    the arena. beside: {other step of `fit`: bytes of the arena that it needs}; overhead_bytes: what the pool adds;
    unused_bytes: what the net holds from step to step and this one does not use, such as the random state of a frozen
    dropout; all three of plans that `plan_batch` makes, which answer for `fit`. process_bytes: what the process takes
    for the calls of a large net, which budgets count (`compiler/byte_limit.py`); 0 of others. recomputed:
    how many operations are done again, to stay within a memory budget or, without one, because fused operations save as
    much time (repeats_are_paid_for); extra_flops: of the products among them; estimated_slowdown: the time that they
    add to that of the plan without a budget, and what the step waits for copies of offloaded values, as a share of
    that, by a rule (`compiler/ir/time_model.py`). form: in words, where gradients that are clipped by their norm are
    made twice. offloaded: how many values are copied to host memory in a step, and back; offloaded_bytes: their sum;
    host_bytes: of host memory, which no budget counts. in_flight_bytes: the most that sums over processes have under
    way at a time, gradients and what comes of the other ranks' (`compile(parallel=)`). rewrites: {a user's rule: how
    often it was applied}.
    """

    beside: Mapping[str, int] = MappingProxyType({})
    overhead_bytes = unused_bytes = 0
    #: No schedule of the calls within the budget, in their order, has a smaller `estimated_slowdown`; None: not known.
    time_bound: float | None = None

    def __init__(self, placed: Placed, blocks: Sequence[Row], eager_bytes: int, process_bytes: int = 0) -> None:
        self.placed = placed
        self.arena_bytes = placed.plan.arena
        self.floor_bytes = placed.plan.floor
        self.recorded_floor_bytes = placed.recorded_floor
        self.gains = dict(placed.gains)
        self.eager_bytes = eager_bytes
        self.proved = placed.plan.proved
        self.order = placed.order
        self.seconds = dict(placed.seconds)
        self.operations = len(placed.planned.instructions)
        repeats = [i for i in placed.planned.instructions if i.repeats is not None]
        self.process_bytes = process_bytes
        self.recomputed = len(repeats)
        self.extra_flops = sum(map(flops, repeats))
        self.estimated_slowdown = estimated_slowdown(placed.planned, placed.free)
        self.rewrites = {rule.name: 0 for rule in placed.recorded.target.rules}
        for one in placed.rewritten.applied:
            self.rewrites[one.name] += 1
        self.repeats_are_paid_for = self.recomputed > 0 and is_free(placed.planned)
        self.form = placed.form
        self.offloaded = len(placed.planned.host_sizes)
        self.offloaded_bytes = sum(placed.planned.host_sizes.values())
        self.host_bytes = placed.host_bytes
        self.in_flight_bytes = most_in_flight(placed.planned)
        self.unshared_bytes = sum(r.size for r in requests(placed.recorded))
        self.by_role = {str(role): sum(b.nbytes for b in blocks if b.role is role) for role in Role}
        self._blocks = list(blocks)
        self._held = [block.nbytes for block in blocks if block.role is not Role.INTERMEDIATE]

    def within_fit(self, beside: Mapping[str, int], overhead_bytes: int) -> MemoryPlan:
        """The same plan, whose total counts other steps that share the arena, and what the pool adds."""
        made = copy(self)
        made.beside, made.overhead_bytes = dict(beside), overhead_bytes
        return made

    def within_net(self, unused_bytes: int) -> MemoryPlan:
        """The same plan, whose total counts what else the net holds from step to step."""
        made = copy(self)
        made.unused_bytes = unused_bytes
        return made

    def with_time_bound(self, time_bound: float) -> MemoryPlan:
        """The same plan with a lower bound on the slowdown of any."""
        made = copy(self)
        made.time_bound = time_bound
        return made

    @cached_property
    def rows(self) -> list[PlacedRow]:
        """What lies in the arena."""
        return _rows(self.placed, self._blocks)

    @cached_property
    def by_class(self) -> dict[str, int]:
        """{class: bytes}: parameters, gradients, optimizer state, running statistics (with the layers' random state),
        inputs, outputs, activations, derivatives, scratch.

        Outside the arena they are bytes as they lie there. Within it, where bytes are shared, the most that live at a
        time: of gradients, that of all that are there together, and sums of several batches beside. So the classes do
        not add up to `total_bytes`.
        """
        held = [(b.name, b.role, b.nbytes, b.number) for b in self._blocks if b.role is not Role.INTERMEDIATE]
        return bytes_by_class(held, self.rows, self.placed.planned)

    @property
    def held_blocks(self) -> list[int]:
        """Bytes of each block outside the arena."""
        return list(self._held)

    @property
    def floor_without_scratch_bytes(self) -> int:
        """The largest sum of live bytes in the chosen order if no operation needed scratch."""
        return max(live_bytes(self.placed.planned, scratch=False), default=0)

    @property
    def gap_bytes(self) -> int:
        """Bytes of the arena above the floor."""
        return self.arena_bytes - self.floor_bytes

    @property
    def gathered_bytes(self) -> int:
        """Bytes of the state in which gradients of several batches are added up, where these want tensors."""
        return sum(b.nbytes for b in self._blocks if b.role is Role.STATE and b.name.endswith(SUM))

    @property
    def held_bytes(self) -> int:
        """Bytes outside the arena: inputs, parameters, state and outputs."""
        return sum(nbytes for role, nbytes in self.by_role.items() if role != Role.INTERMEDIATE)

    @property
    def total_bytes(self) -> int:
        """All that the step needs: the arena and what is outside it; of `plan_batch`, all that `fit` needs."""
        arena = max(self.arena_bytes, *self.beside.values(), 0)
        return arena + self.held_bytes + self.overhead_bytes + self.unused_bytes + self.process_bytes

    @property
    def peak_step(self) -> int:
        """The step at which most bytes are live."""
        live = live_bytes(self.placed.planned)
        return live.index(max(live)) if live else 0

    def at_peak(self) -> list[PlacedRow]:
        """What is live at the peak step, largest first."""
        peak = self.peak_step
        return sorted((r for r in self.rows if r.lower <= peak < r.upper), key=lambda r: (-r.nbytes, r.name))

    @property
    def repeats(self) -> list[RepeatRow]:
        """What is done again, in the order of the steps."""
        return repeat_rows(self.placed.planned)

    @property
    def variants(self) -> list[VariantRow]:
        """Calls of kernels that are done in one of several ways, in the order of the steps."""
        return variant_rows(self.placed.planned)

    def check(self) -> None:
        """Prove the plan once more. PlanError names what is wrong."""
        placed = self.placed
        names = {block.number: block.name for block in self._blocks}
        told = request_labels(placed.planned, names)
        check(requests(placed.planned), placed.plan.offsets, placed.plan.arena, told=told)
        on_host = {} if placed.host is None else placed.host.offsets
        check(host_requests(placed.planned), on_host, placed.host_bytes)
        prove(placed, names)

    def summary(self) -> str:
        """The plan in words and a table of what is live at the peak."""
        held = {role: n for role, n in self.by_role.items() if role != Role.INTERMEDIATE and not Role(role).is_frozen}
        frozen = {role: nbytes for role, nbytes in self.by_role.items() if nbytes and Role(role).is_frozen}
        proof = "proved least" if self.proved else "not proved least"
        lines = [
            f"{self.operations} operations in {self.order!r} order",
            f"arena      {_mib(self.arena_bytes)}, {proof} for this order",
            f"floor      {_mib(self.floor_bytes)} (gap {self.gap_bytes:,} bytes), as recorded "
            f"{_mib(self.recorded_floor_bytes)}",
            f"gained     {self._gained()}",
            *([f"repeated   {self._repeated()}"] if self.recomputed else []),
            *([f"form       {self.form}: {self.estimated_slowdown:.1%} of the step's time"] if self.form else []),
            *([f"offloaded  {self._offloaded()}"] if self.offloaded else []),
            *([f"certified  {self._certified(self.time_bound)}"] if self.time_bound is not None else []),
            *([f"in flight  {_mib(self.in_flight_bytes)} of sums over ranks"] if self.in_flight_bytes else []),
            f"unshared   {_mib(self.unshared_bytes)}, eager high water {_mib(self.eager_bytes)}",
            *(f"variants   {line}" for line in variant_lines(self.variants)),
            "outside    " + ", ".join(f"{role} {_mib(nbytes)}" for role, nbytes in held.items()),
            *(f"{role:<10} {_mib(nbytes)} of weights that do not train" for role, nbytes in frozen.items()),
            *(
                [f"unused     {_mib(self.unused_bytes)} that the net holds for other steps"]
                if self.unused_bytes
                else []
            ),
            *([f"gathered   {_mib(self.gathered_bytes)} of state: sums of gradients"] if self.gathered_bytes else []),
            *(
                [f"in fit     arena {_mib(max(self.beside.values()))}, the pool's own {_mib(self.overhead_bytes)}"]
                if self.beside
                else []
            ),
            *self._process(),
            f"together   {_mib(self.total_bytes)}",
        ]
        peak = self.peak_step
        if self.rows:
            at = self.placed.planned.instructions[peak]
            lines.append(f"live at the peak, step {peak} ({at.kernel}, layer {at.layer!r}):")
        lines += [f"  {_mib(r.nbytes)}  {r.kind:10}  {r.layer} {r.name}" for r in self.at_peak()[:20]]
        return "\n".join(lines + self._costliest_repeats())

    def _process(self) -> list[str]:
        """A line on what the process takes, where that counts."""
        told = f"process    {_mib(self.process_bytes)} for {self.operations:,} operations"
        return [told] if self.process_bytes else []

    def _costliest_repeats(self) -> list[str]:
        """Lines of a table, in the order of the steps, of what takes most time to do again."""
        rows = sorted(self.repeats, key=lambda row: -row.seconds)[:20]
        if not rows:
            return []
        title = f"done again, the costliest {len(rows)} of {self.recomputed}:"
        return [title, *(_repeat_line(row) for row in sorted(rows, key=lambda row: row.step))]

    def _repeated(self) -> str:
        done = f"{self.recomputed} operations, {self.extra_flops / 1e9:.2f} GFLOP, estimated "
        if self.repeats_are_paid_for:
            took = sum(row.seconds for row in self.repeats)
            return f"{done}{took * 1e3:.2f} ms, no more than fused operations save"
        return f"{done}{self.estimated_slowdown:.1%} of the step's time (by a rule)"

    def _certified(self, time_bound: float) -> str:
        points = max(0.0, 100 * (self.estimated_slowdown - time_bound))
        return f"at most {points:.1f} points of the step's time from the best possible in this order of calls"

    def _offloaded(self) -> str:
        return (
            f"{self.offloaded} values, {_short(self.offloaded_bytes)}, through {_short(self.host_bytes)} of host "
            f"memory; estimated {self.estimated_slowdown:.1%} of the step's time, repeats among it"
        )

    def _gained(self) -> str:
        """What each pass took from the floor, in words."""
        gains = [f"{name} {_mib(nbytes)}" for name, nbytes in self.gains.items() if nbytes]
        return ", ".join(gains) or "nothing by any pass"

    def to_html(self, path: str, net: Drawable | None = None) -> None:
        """Writes one self-contained page: the arena as rectangles of time and offset, the live bytes above it, and a
        table of the layers. Each rectangle leads to its row of the table, and back. net: is drawn too, and its boxes
        lead to that table.
        """
        if net is not None and not callable(getattr(net, "layer_rows", None)):
            raise TypeError(f"to_html net: wanted a FeedForwardNet, received {net!r:.100}")
        plan_page.write(self, checks.path("to_html", path), net)

    def __repr__(self) -> str:
        return f"<MemoryPlan arena {_mib(self.arena_bytes)}, floor {_mib(self.floor_bytes)}>"


def _rows(placed: Placed, blocks: Sequence[Row]) -> list[PlacedRow]:
    spans = lifespans(placed.planned)
    kinds = {
        operand.block: str(instruction.phase) if instruction.repeats is None else AGAIN
        for instruction in reversed(placed.planned.instructions)
        for operand in instruction.writes
    }
    by_number = {block.number: block for block in blocks}
    rows = []
    for number, span in spans.items():
        block = by_number[number]
        kind = kinds.get(number, "forward")
        offset = placed.offsets[number]
        rows.append(PlacedRow(block.name, block.layer, kind, block.nbytes, span.start, span.stop, offset))
    for time, instruction in zip(placed.planned.times(), placed.planned.instructions, strict=True):
        if instruction.scratch_bytes:
            offset, nbytes = placed.scratch[instruction.number], placed.planned.rounded(instruction.scratch_bytes)
            name = f"scratch of {called(placed.planned.target, instruction)}"
            rows.append(PlacedRow(name, instruction.layer, "scratch", nbytes, *time, offset))
    return rows


def _repeat_line(row: RepeatRow) -> str:
    freed = f"{_mib(row.nbytes)}  free in steps {row.free_steps}"
    return f"{freed}, made again at {row.step} in {row.seconds * 1e3:.2f} ms: {row.layer} {row.kernel}"


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:10.2f} MiB"


def _short(nbytes: int) -> str:
    return _mib(nbytes).strip()
