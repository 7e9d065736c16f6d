"""Graph: a recorded step. Nothing runs while it is recorded; then it is planned once and replayed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import ReferenceType, ref

from singa_lite import threads
from singa_lite.arena import Arena, Executable
from singa_lite.arena import Pause as Pause
from singa_lite.errors import GraphError
from singa_lite.memory_plan import MemoryPlan, Row
from singa_lite.operation import Instruction as Instruction
from singa_lite.operation import Operand, Role
from singa_lite.operation import Operation as Operation
from singa_lite.operation import Phase as Phase
from singa_lite.passes.lower import Placed, lower, prove, unshared
from singa_lite.passes.pipeline import rewriting, through
from singa_lite.passes.program import Program
from singa_lite.passes.target import Target
from singa_lite.reports.dot import to_dot
from singa_lite.reports.profile import Profile, measure
from singa_lite.step_device import StepDevice
from singa_lite.tensor import Block, Tensor
from singa_lite.unique import Unique

ORDERS = ("recorded", "dependencies")


@dataclass(slots=True)
class RecordedBlock:
    """A block of the record. held: the block itself, once it has bytes of its own. fresh: for one made in the record.

    born, died: how many operations were recorded before the block was made, and before its last tensor died; None
    where it had its bytes before, or where somebody still holds a tensor over it.
    """

    nbytes: int
    held: Block | None = None
    fresh: ReferenceType[Block] | None = None
    born: int = 0
    died: int | None = None
    name: str = ""
    layer: str = ""
    is_parameter: bool = False


class Graph(Unique):
    """The operations of a step, recorded by `device.recording()`, and run as often as wanted.

    operations: in the order of recording. A block of bytes is an input, parameter or state if it had its bytes
    before, an output if somebody still holds a tensor over it when the graph first runs, else an intermediate:
    only these are placed in the arena, and their bytes may be used again within the step. fuse: whether operations
    may be replaced by equivalent ones that need less: the passes of `passes/pipeline.py` that rewrite;
    SINGA_LITE_FUSE=off says no for all graphs.
    """

    def __init__(self, device: StepDevice, arena: Arena | None = None, fuse: bool = True) -> None:
        self.device = device
        self.fuse = fuse and os.environ.get("SINGA_LITE_FUSE", "") != "off"
        self.arena = arena if arena is not None else Arena(device)
        self.instructions: list[Instruction] = []
        self.blocks: list[RecordedBlock] = []
        self.open_walks = 0
        self.recording = True
        self.failed = False
        #: Called before each run: whoever fills the inputs raises there if they are not filled.
        self.check_inputs: Callable[[], None] | None = None
        self._numbers: dict[int, int] = {}
        self._used: set[int] = set()
        self._writes: set[int] | None = None
        self._placed: dict[str, Placed] = {}
        self._executables: dict[str, Executable] = {}
        #: Blocks made while recording that somebody holds: inputs without values yet, and outputs.
        self._fresh: dict[int, Block] = {}

    # ---- recording

    def enter(self, block: Block) -> None:
        """Note a block without bytes; it tells the graph when its last tensor dies."""
        number = self._enter(block, RecordedBlock(block.nbytes, fresh=ref(block), born=len(self.instructions)))
        block.set_give(partial(self._died, number, id(block)))

    def append(self, operation: Operation) -> None:
        """Note an operation instead of doing it."""
        self.instructions.append(
            Instruction(
                len(self.instructions),
                operation.kernel,
                tuple(None if tensor is None else self._operand(tensor) for tensor in operation.tensors),
                operation.settings,
                operation.phase,
                operation.layer,
                operation.scratch_bytes,
            )
        )
        for tensor in operation.writes:
            block = self.blocks[self._numbers[id(tensor.block)]]
            if not block.layer:
                block.layer = operation.layer
            block.name = block.name or tensor.name or operation.kernel

    def knows(self, block: Block) -> bool:
        """Whether an operation of the record uses the block."""
        return self._number(block) in self._used

    def forget(self, block: Block) -> None:
        """The block gets its bytes now: from here on it is one that had them before."""
        number = self._numbers[id(block)]
        self.blocks[number] = RecordedBlock(block.nbytes, held=block)

    def close(self, failed: bool) -> None:
        """The end of recording."""
        self.recording, self.failed = False, failed

    def _enter(self, block: Block, recorded: RecordedBlock) -> int:
        self._numbers[id(block)] = len(self.blocks)
        self.blocks.append(recorded)
        return len(self.blocks) - 1

    def _died(self, number: int, key: int) -> None:
        if self._numbers.get(key) == number:
            del self._numbers[key]
        if self.blocks[number].fresh is not None:
            self.blocks[number].died = len(self.instructions)

    def _number(self, block: Block) -> int | None:
        """The block's number; not that of one which died without a word, as an interrupt ended its `__del__`."""
        number = self._numbers.get(id(block))
        if number is None:
            return None
        fresh = self.blocks[number].fresh
        return number if fresh is None or fresh() is block else None

    def _operand(self, tensor: Tensor) -> Operand:
        block = tensor.block
        number = self._number(block)
        if number is None:
            number = self._enter(block, RecordedBlock(block.nbytes, held=block, name=tensor.name))
        self._used.add(number)
        if tensor.stores_grad:
            self.blocks[number].is_parameter = True
        return Operand(number, tensor.shape, tensor.dtype, tensor.strides, tensor.offset)

    # ---- looking

    @property
    def operations(self) -> Sequence[Instruction]:
        """What was recorded, in order."""
        return tuple(self.instructions)

    def role(self, number: int) -> Role:
        """What the block with this number is to the step."""
        block = self.blocks[number]
        made_here = block.fresh is not None
        if number not in self._written():
            return Role.PARAMETER if block.is_parameter else Role.INPUT
        if made_here:
            return Role.OUTPUT if block.died is None else Role.INTERMEDIATE
        return Role.PARAMETER if block.is_parameter else Role.STATE

    def _written(self) -> set[int]:
        if self._writes is None or self.recording:
            self._writes = {operand.block for instruction in self.instructions for operand in instruction.writes}
        return self._writes

    @property
    def eager_bytes(self) -> int:
        """Most bytes live at a time if every operation were done at once and freed when Python lets go of it."""
        change = [0] * (len(self.instructions) + 2)
        for block in self.blocks:
            if block.fresh is not None:
                change[block.born] += block.nbytes
                change[len(self.instructions) + 1 if block.died is None else block.died] -= block.nbytes
        level = most = 0
        for step, instruction in enumerate(self.instructions):
            level += change[step]
            most = max(most, level + instruction.scratch_bytes)
        return most

    @property
    def memory_plan(self) -> MemoryPlan:
        """The plan of the recorded order; made now if the graph has not run yet."""
        return self.plan("recorded")

    def plan(self, order: str = "recorded") -> MemoryPlan:
        """The plan for an order of running, see `run`. Nothing is allocated for it."""
        return self._plan_of(self._place(order))

    def rough_plan(self) -> MemoryPlan:
        """As `memory_plan`, but blocks are placed in a hurry: the real arena lies between the floor and this one."""
        return self._plan_of(self._placed.get("recorded") or self._lowered("recorded", search=False))

    def _plan_of(self, placed: Placed) -> MemoryPlan:
        rows = [
            Row(self._name(number), block.layer, self.role(number), block.nbytes, number)
            for number, block in enumerate(self.blocks)
            if number in placed.rewritten.sizes or self.role(number) is not Role.INTERMEDIATE
        ]
        return MemoryPlan(placed, [*rows, *self._tile_rows(placed)], self.eager_bytes)

    def scratch_bytes(self) -> list[int]:
        """Of each operation, as it would run in the recorded order; nothing is placed for it."""
        self._check_whole()
        rewritten = through(self._record(), rewriting(self.fuse))
        return [instruction.scratch_bytes for instruction in rewritten.instructions]

    def _tile_rows(self, placed: Placed) -> list[Row]:
        """The blocks that rewriting made."""
        rows = {}
        for instruction in placed.rewritten.instructions:
            for operand in instruction.writes:
                if operand.block >= len(self.blocks):
                    name = instruction.kernel
                    rows[operand.block] = Row(
                        name, instruction.layer, Role.INTERMEDIATE, placed.rewritten.sizes[operand.block], operand.block
                    )
        return list(rows.values())

    def to_dot(self) -> str:
        """The record in the language of Graphviz: operations colored by phase, and what each directly depends on."""
        return to_dot(self.instructions, [self._name(number) for number in range(len(self.blocks))])

    def _name(self, number: int) -> str:
        return self.blocks[number].name or f"block {number}"

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

    def profile(self, runs: int = 10) -> Profile:
        """Time each operation of the planned step by itself: the median over `runs`, at least 1, in seconds.

        This really runs the step: its parameters and state move `runs` times.
        """
        if self.check_inputs is not None:
            self.check_inputs()
        executable = self._executable("recorded")
        threads.settle()
        return self.arena.turn.run(self._measured, executable, runs)

    def _measured(self, executable: Executable, runs: int) -> Profile:
        with self.device.runtime.here():
            return measure(executable.placed.planned.instructions, executable.launches(), runs, self.device.synchronize)

    def _executable(self, order: str) -> Executable:
        if not self.recording and self.device.graph is not None:
            raise GraphError("run: wanted no recording on this device meanwhile; run the graph before or after it")
        if order not in self._executables:
            placed = self._place(order)
            prove(placed)
            for block in self._fresh.values():
                if block.memory is None:
                    self.device.bind(block)
            held = {number: b.held for number, b in enumerate(self.blocks) if b.held is not None} | self._fresh
            checked = os.environ.get("SINGA_LITE_CHECKED", "") == "1"
            self._executables[order] = Executable(placed, self.arena, held, checked)
        return self._executables[order]

    def _place(self, order: str) -> Placed:
        """The plan of an order; the first call decides which blocks are outputs, and holds them."""
        if order not in ORDERS:
            raise ValueError(f"order: wanted one of {ORDERS}, received {order!r}")
        if order not in self._placed:
            self._placed[order] = self._lowered(order)
        return self._placed[order]

    def _lowered(self, order: str, search: bool = True) -> Placed:
        self._check_whole()
        if not self._placed:
            self._hold_outputs()
        self._check_written()
        if os.environ.get("SINGA_LITE_PLAN", "") == "off":
            return unshared(self._record(), fuse=self.fuse)
        return lower(self._record(), fuse=self.fuse, parallel=order == "dependencies", search=search)

    def _hold_outputs(self) -> None:
        """From now on: which blocks are outputs is decided by who is held when the graph is first planned."""
        alive = {number: b.fresh() for number, b in enumerate(self.blocks) if b.fresh is not None}
        self._fresh = {number: block for number, block in alive.items() if block is not None}
        for number in alive.keys() - self._fresh.keys():
            if self.blocks[number].died is None:  # it could not say so, as an interrupt ended its `__del__`
                self.blocks[number].died = len(self.instructions)

    def _record(self) -> Program:
        """The record as a program for the device."""
        sizes = {n: b.nbytes for n, b in enumerate(self.blocks) if self.role(n) is Role.INTERMEDIATE}
        target = Target.of(self.device.kernels, self.device.runtime.alignment)
        return Program(tuple(self.instructions), sizes, target, len(self.blocks))

    def _check_whole(self) -> None:
        if self.recording:
            raise GraphError("run: wanted the recording to be finished, leave its with block first")
        if self.failed:
            raise GraphError("run: wanted a whole step, but its recording ended with an exception")
        if self.open_walks:
            raise GraphError("run: wanted a whole step, but a backward() was left before its end while recording")

    def _check_written(self) -> None:
        """GraphError if something reads a tensor made in the record that nothing writes and nobody can fill."""
        for instruction in self.instructions:
            for operand in instruction.reads:
                block = self.blocks[operand.block]
                if block.fresh is not None and block.died is not None and operand.block not in self._written():
                    raise GraphError(
                        f"run: {instruction.kernel!r} (layer {instruction.layer!r}) wanted a tensor with values, "
                        f"received one of shape {operand.shape} that was made in the recording and never written"
                    )

    def __repr__(self) -> str:
        state = "recording" if self.recording else "failed" if self.failed else "recorded"
        return f"<Graph {state}, {len(self.instructions)} operations, {len(self.blocks)} blocks>"
