"""Record: the operations of a step as instructions over numbered blocks, noted while the user's code runs.

It holds no tensor and keeps no block alive that was made in the recording. So it learns when each of them dies, as a
pool would: a block that somebody still holds when the step is first planned is an output, the others are intermediates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from weakref import ReferenceType, ref

from singa_lite.common.errors import GraphError
from singa_lite.common.packed import Packed
from singa_lite.common.unique import Unique
from singa_lite.compiler.ir.operation import Instruction, Operand, Operation, Role
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.target import Target
from singa_lite.graph.recorded_options import RecordedOptions
from singa_lite.tensor import Block, Tensor

#: {whose it is and its name: whose it is, so that it lives, and the tensor}
SharedTensors = dict[tuple[int, str], tuple[object, Tensor]]


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
    trains: bool = False


class _Noted(list[Instruction]):
    """Instructions in a list that weak references can be made to."""


class Record(Unique):
    """A recorded step. blocks: by number, as the operands name them. count: of the operations.

    recording: whether it still goes on. failed: whether an exception ended it. open_walks: how many `backward()` were
    begun and not yet walked to their end.
    """

    def __init__(self) -> None:
        self._noted = Packed(_Noted(), (_Noted, Instruction, Operand))
        self.count = 0
        self.blocks: list[RecordedBlock] = []
        self.open_walks = 0
        self.recording = True
        self.failed = False
        self._numbers: dict[int, int] = {}  # by the id of the block
        self._used: set[int] = set()
        self._writes: set[int] | None = None
        #: What the record was made by.
        self.options = RecordedOptions()
        #: What operations share with later ones of the same step, until the recording ends.
        self.shared: SharedTensors = {}
        #: Blocks made while recording that somebody holds: inputs without values yet, and outputs.
        self._fresh: dict[int, Block] = {}

    def enter(self, block: Block) -> None:
        """Note a block without bytes. When its last tensor dies, `_note_death` is called."""
        number = self._enter(block, RecordedBlock(block.nbytes, fresh=ref(block), born=self.count))
        block.set_give(partial(self._note_death, number, id(block)))

    def append(self, operation: Operation) -> None:
        """Note an operation instead of doing it."""
        self.instructions.append(
            Instruction(
                self.count,
                operation.kernel,
                tuple(None if tensor is None else self.operand(tensor) for tensor in operation.tensors),
                operation.settings,
                operation.phase,
                operation.layer,
                operation.scratch_bytes,
            )
        )
        self.count += 1
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

    def goes_back(self) -> None:
        """A walk back begins."""
        self.open_walks += 1
        self.options.note_walk()

    def close(self, failed: bool) -> None:
        """The end of recording."""
        self.recording, self.failed = False, failed
        self.options.settle()
        self.shared.clear()  # else they would be outputs

    def _enter(self, block: Block, recorded: RecordedBlock) -> int:
        self._numbers[id(block)] = len(self.blocks)
        self.blocks.append(recorded)
        return len(self.blocks) - 1

    def _note_death(self, number: int, key: int) -> None:
        if self._numbers.get(key) == number:
            del self._numbers[key]
        if self.blocks[number].fresh is not None:
            self.blocks[number].died = self.count

    def _number(self, block: Block) -> int | None:
        """The block's number. An earlier block may have had the same id, and died unnoticed if an interrupt came."""
        number = self._numbers.get(id(block))
        if number is None:
            return None
        fresh = self.blocks[number].fresh
        return number if fresh is None or fresh() is block else None

    def operand(self, tensor: Tensor) -> Operand:
        """The tensor as operations of the record name it."""
        block = tensor.block
        number = self._number(block)
        if number is None:
            number = self._enter(block, RecordedBlock(block.nbytes, held=block, name=tensor.name))
        self._used.add(number)
        self.blocks[number].is_parameter |= tensor.is_parameter
        self.blocks[number].trains |= tensor.stores_grad
        return Operand(number, tensor.shape, tensor.dtype, tensor.strides, tensor.offset)

    @property
    def instructions(self) -> list[Instruction]:
        """In the order of recording."""
        return self._noted.value

    def pack(self) -> None:
        """Keep the instructions as bytes from here on, until somebody asks for them."""
        self._noted.pack()

    @property
    def operations(self) -> Sequence[Instruction]:
        """What was recorded, in order."""
        return tuple(self.instructions)

    def role(self, number: int) -> Role:
        """What the block with this number is to the step."""
        block = self.blocks[number]
        made_here = block.fresh is not None
        if block.held is not None and block.held.frozen:
            return Role(block.held.frozen)
        if number not in self._written():
            kept = Role.PARAMETER if block.trains else Role.FROZEN
            return kept if block.is_parameter else Role.INPUT
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

    def _name(self, number: int) -> str:
        return self.blocks[number].name or f"block {number}"

    # ---- for planning

    def _program(self, target: Target) -> Program:
        """The record as a program for a device."""
        sizes = {n: b.nbytes for n, b in enumerate(self.blocks) if self.role(n) is Role.INTERMEDIATE}
        return Program(tuple(self.instructions), sizes, target, len(self.blocks))

    def _hold_outputs(self) -> None:
        """Decide which blocks are outputs, namely those that somebody holds now, and hold them from here on."""
        alive = {number: b.fresh() for number, b in enumerate(self.blocks) if b.fresh is not None}
        self._fresh = {number: block for number, block in alive.items() if block is not None}
        for number in alive.keys() - self._fresh.keys():
            if self.blocks[number].died is None:  # an interrupt ended its `__del__` before it was noted
                self.blocks[number].died = self.count

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
