"""Graph: a recorded step, planned once and replayed as often as wanted. Nothing runs while it is recorded."""

from __future__ import annotations

import os
from collections.abc import Callable

from singa_lite.common import threads
from singa_lite.common.checks import flag, integer
from singa_lite.common.errors import GraphError
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.operation import Operation as Operation
from singa_lite.compiler.ir.operation import Phase as Phase
from singa_lite.compiler.placed import prove
from singa_lite.compiler.proof.calls import exact
from singa_lite.compiler.report.plan_figure import to_dot
from singa_lite.compiler.report.profile import Peaks, Profile, measure
from singa_lite.graph.arena import Arena, StepDevice
from singa_lite.graph.call_times import peaks_of
from singa_lite.graph.executable import Executable
from singa_lite.graph.executable import Pause as Pause
from singa_lite.graph.planned_record import ORDERS as ORDERS
from singa_lite.graph.planned_record import PlannedRecord
from singa_lite.graph.record import Record
from singa_lite.tensor import Block


class Graph(PlannedRecord):
    """The operations of a step, recorded by `device.recording()`, and run as often as wanted.

    operations: in the order of recording. A block of bytes is an input, parameter or state if it had its bytes
    before, an output if somebody still holds a tensor over it when the graph first runs, else an intermediate:
    only these are placed in the arena, and their bytes may be used again within the step. fuse: whether operations
    may be replaced by equivalent ones that need less: the passes of `compiler/pipeline.py` that rewrite;
    SINGA_LITE_FUSE=off says no for all graphs. budget: bytes that the step may take in all, with what the pool adds:
    values are dropped and made again so that the arena leaves room for the rest. None: as many as it takes.
    """

    def __init__(
        self, device: StepDevice, arena: Arena | None = None, fuse: bool = True, budget: int | None = None
    ) -> None:
        super().__init__(device, arena, fuse, budget)
        #: Called before each run of a net's step: whoever fills the inputs raises there if they are not filled. The
        #: net looks at options by itself.
        self.check_inputs: Callable[[], None] | None = None
        self._executables: dict[str, Executable] = {}

    def prepare(self, order: str | None = None) -> None:
        """Plan, prove and bind now what the first `run` in this order would."""
        self._executable(self.order if order is None else order).prepare()

    def executable(self) -> Executable:
        """What runs it in its own order, with its blocks."""
        return self._executable(self.order)

    def run(self, order: str | None = None, pause: Pause | None = None) -> None:
        """Replay the step. The first run plans it, proves the plan and binds every launch to its bytes.

        order: "recorded" (or an equivalent one that needs less memory), or "dependencies": wave by wave, by a plan
        that would also hold if the lanes of a wave ran at the same time. The results are equal, bit for bit. None:
        the graph's own, "recorded" unless its net was compiled with another one.
        pause: where to wait for others who still read what the step will overwrite. GraphError where layers, losses or
        optimizers have other options than when it was recorded; an optimizer's rate may change, and is followed.
        """
        self._check_before_run()
        self._executable(self.order if order is None else order).run(pause)

    def profile(self, runs: int = 10, *, peaks: bool = True) -> Profile:
        """Time each operation of the planned step by itself: the median over `runs`, at least 1, in seconds.

        The step really runs; behind it parameters, state, outputs and counters are what they were, from copies on the
        host. peaks: measure what a product of matrices
        and a copy reach here, too, which takes some tenths of a second the first time; each operation is then told as a
        share of both.
        """
        runs = integer("profile: runs", runs, 1)
        peaks = flag("profile: peaks", peaks)
        self._check_before_run()
        executable = self._executable(self.order)
        threads.settle()
        found = peaks_of(self.arena) if peaks else None
        return self.arena.turn.run(self._measured, executable, runs, found)

    def _check_before_run(self) -> None:
        if self.check_inputs is not None:
            self.check_inputs()
        elif not self.recording:
            self.options.check()

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
            self.device.check_bytes("running a recorded step")
            placed = self._place(order)
            self._lowering = None
            prove(placed, {number: block.name for number, block in enumerate(self.blocks)})
            for block in self._fresh.values():
                if block.memory is None:
                    self.device.bind(block)
            held = {number: b.held for number, b in enumerate(self.blocks) if b.held is not None} | self._fresh
            checked = os.environ.get("SINGA_LITE_CHECKED", "") == "1"
            packed = self._placed[order]
            self._executables[order] = Executable(packed, self.arena, held, checked, self._kernels)
            packed.pack()
            self.pack()
        return self._executables[order]

    def blocks_with_bytes(self) -> list[Block]:
        """The blocks outside the arena that have their bytes: outputs have them once the step is bound."""
        held = [block.held for block in self.blocks if block.held is not None]
        return [block for block in (*held, *self._fresh.values()) if block.memory is not None]

    def let_go(self) -> None:
        """Hold no block any more, as the step is not to run: the graph itself may live until garbage is collected."""
        self._lowering = None
        for block in self.blocks:
            block.held = None
        self._fresh.clear()

    def retire(self) -> None:
        """Hold no bytes any more, as the step is not to run again; its plan can still be asked for."""
        self._executables.clear()
        self.let_go()

    def equals(self, other: Graph) -> bool:
        """True if both records have the same operations in the same order on tensors of the same shapes, dtypes,
        strides and connections. So the two are equal up to names.

        Phases and settings count, names of layers and tensors and values do not; nor does which device it is. What a
        tensor is to the step (`role`) counts too. TypeError for what is no graph, GraphError while one of them records.
        """
        if not isinstance(other, Graph):
            raise TypeError(f"equals: wanted a Graph, received {type(other).__name__}")
        if self.recording or other.recording:
            raise GraphError("equals: wanted graphs whose recording is finished, leave its with block first")
        return _same_up_to_names(self, other)

    def to_dot(self) -> str:
        """The record in the language of Graphviz: operations colored by phase, and what each directly depends on."""
        return to_dot(self.instructions, [self._name(number) for number in range(len(self.blocks))])

    def __repr__(self) -> str:
        state = "recording" if self.recording else "failed" if self.failed else "recorded"
        return f"<Graph {state}, {self.count} operations, {len(self.blocks)} blocks>"


def _same_up_to_names(one: Record, other: Record) -> bool:
    """Whether there is one renaming of blocks by which each operation of the one is that of the other."""
    if one.count != other.count:
        return False
    there: dict[int, int] = {}
    back: dict[int, int] = {}
    for mine, theirs in zip(one.instructions, other.instructions, strict=True):
        if _nameless(mine) != _nameless(theirs):
            return False
        for operand, twin in zip(mine.operands, theirs.operands, strict=True):
            if operand is None or twin is None:
                continue
            if there.setdefault(operand.block, twin.block) != twin.block:
                return False
            if back.setdefault(twin.block, operand.block) != operand.block:
                return False
    return all(
        one.role(block) is other.role(twin) and one.blocks[block].nbytes == other.blocks[twin].nbytes
        for block, twin in there.items()
    )


def _nameless(instruction: Instruction) -> tuple[object, ...]:
    """All of an operation but names and which blocks it is over."""
    views = tuple(o and (o.shape, o.dtype, o.strides, o.offset) for o in instruction.operands)
    settings = {name: exact(value) for name, value in instruction.settings.items()}
    return instruction.kernel, settings, instruction.phase, views
