"""Program: instructions in an order to run them, and their blocks; and Rewriter, by which passes make new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

from singa_lite.common.array_types import DType
from singa_lite.common.strides import laid_out
from singa_lite.compiler.ir.matching import Application
from singa_lite.compiler.ir.operation import Instruction, Operand, called
from singa_lite.compiler.ir.target import PLAIN, Target
from singa_lite.compiler.placement.problem import PlanError, Request
from singa_lite.kernels.interface import SIGNATURES, joined_of
from singa_lite.kernels.kernel_set import Settings
from singa_lite.tensor import Shape


@dataclass(frozen=True)
class Program:
    """Instructions in the order to run them. sizes: {intermediate block: bytes}; all other blocks are held.

    target: the kernels and the memory that it is for. blocks: all blocks of the record have lower numbers, those that
    no instruction uses too; numbers: so have all instructions that the proof knows, those that were left out too.
    order: the name of the order. rivals: other forms of the program, which compete with it when an order is chosen.
    host_sizes: {block of host memory: bytes}, of values that are offloaded. free: what runs without a limit, where that
    has repeats; else nothing. keeps_order: no other order is to be looked for. waves: of each wave how many
    instructions each of its lanes has, which may run at the same time (`parallel.py`); the instructions stand lane
    after lane. (): each is a wave. applied: where the user's rules were (`rules.py`).
    """

    instructions: tuple[Instruction, ...]
    sizes: dict[int, int]
    target: Target = PLAIN
    blocks: int = 0
    numbers: int = 0
    order: str = "recorded"
    rivals: tuple[Program, ...] = ()
    host_sizes: dict[int, int] = field(default_factory=dict)
    free: tuple[Instruction, ...] = ()
    keeps_order: bool = False
    waves: tuple[tuple[int, ...], ...] = ()
    applied: tuple[Application, ...] = ()

    @property
    def next_block(self) -> int:
        """A number that no block has, nor any above it."""
        used = (o.block for i in self.instructions for o in i.operands if o is not None)
        return 1 + max((self.blocks - 1, *self.sizes, *self.host_sizes, *used))

    @property
    def next_number(self) -> int:
        """A number that no instruction has, nor one that was left out, nor any above it."""
        return max(self.numbers, 1 + max((i.number for i in self.instructions), default=-1))

    def numbered(self) -> Program:
        """The same, which remembers the numbers of its instructions where some of them are left out later."""
        return self if self.numbers == self.next_number else replace(self, numbers=self.next_number)

    def with_instructions(self, instructions: Sequence[Instruction]) -> Program:
        """The same blocks under other instructions, one after the other."""
        return replace(self, instructions=tuple(instructions), waves=())

    def times(self) -> list[Lifespan]:
        """Of each step, the steps of its wave: what it uses is live in all of them."""
        if not self.waves:
            return [Lifespan(step, step + 1) for step in range(len(self.instructions))]
        ends = accumulate(map(sum, self.waves))
        return [
            Lifespan(end - sum(wave), end) for wave, end in zip(self.waves, ends, strict=True) for _ in range(sum(wave))
        ]

    def rounded(self, nbytes: int) -> int:
        """nbytes rounded up to the target's alignment."""
        alignment = self.target.alignment
        return -(-nbytes // alignment) * alignment


class Lifespan(NamedTuple):
    """Steps from the first use of a block (inclusive) to behind the last one (exclusive)."""

    start: int
    stop: int


def lifespans(program: Program, sizes: Mapping[int, int] | None = None) -> dict[int, Lifespan]:
    """The lifespan of each of these blocks that is used; None: of the intermediate ones."""
    sizes = program.sizes if sizes is None else sizes
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, instruction in enumerate(program.instructions):
        for operand in instruction.operands:
            if operand is not None and operand.block in sizes:
                block = operand.block
                if block not in first:
                    first[block] = step
                last[block] = step
    times = program.times()
    return {block: Lifespan(times[step].start, times[last[block]].stop) for block, step in first.items()}


def requests(program: Program) -> list[Request]:
    """What the planner must place: each intermediate block, and each instruction's scratch for its one step.

    The id is "b<block>", or "s<number of the instruction>" for scratch.
    """
    spans, alignment = lifespans(program), program.target.alignment
    wanted = [Request(f"b{b}", s.start, s.stop, program.rounded(program.sizes[b]), alignment) for b, s in spans.items()]
    wanted += [
        Request(f"s{instruction.number}", *time, program.rounded(instruction.scratch_bytes), alignment)
        for time, instruction in zip(program.times(), program.instructions, strict=True)
        if instruction.scratch_bytes
    ]
    return wanted


def host_requests(program: Program) -> list[Request]:
    """What must be placed in host memory, by the id "h<block>"."""
    spans, alignment = lifespans(program, program.host_sizes), program.target.alignment
    sizes = {block: program.rounded(nbytes) for block, nbytes in program.host_sizes.items()}
    return [Request(f"h{b}", span.start, span.stop, sizes[b], alignment) for b, span in spans.items()]


def live_bytes(program: Program, scratch: bool = True) -> list[int]:
    """Bytes live at each step, sizes rounded up to the alignment; its largest entry is the floor.

    scratch: that of the instructions counts, too.
    """
    changes = [0] * (len(program.instructions) + 1)
    for block, span in lifespans(program).items():
        size = program.rounded(program.sizes[block])
        changes[span.start] += size
        changes[span.stop] -= size
    for time, instruction in zip(program.times(), program.instructions, strict=True):
        if scratch and instruction.scratch_bytes:
            nbytes = program.rounded(instruction.scratch_bytes)
            changes[time.start] += nbytes
            changes[time.stop] -= nbytes
    return [*accumulate(changes[:-1])]


def floor(program: Program) -> int:
    """The largest sum of live bytes: no placement in this order needs less."""
    return max(live_bytes(program), default=0)


def split_joined(program: Program) -> Program:
    """The program with single calls, one after the other, in the place of each joined one.

    Each call has the number that it had before it was joined, and the scratch of all. PlanError for a call that is not
    several of one kernel.
    """
    if not any(instruction.joins for instruction in program.instructions):
        return program
    return program.with_instructions([call for i in program.instructions for call in single_calls(i)])


def single_calls(instruction: Instruction) -> list[Instruction]:
    """The calls of a joined one; any other by itself."""
    if not instruction.joins:
        return [instruction]
    kernel, count = joined_of(instruction.kernel)
    if count != len(instruction.joins):
        raise PlanError(f"{called(instruction)}: wanted {len(instruction.joins)} calls of one kernel, received {count}")
    width = len(SIGNATURES[kernel].tensors)
    return [
        replace(instruction, number=number, kernel=kernel, operands=instruction.operands[at : at + width], joins=())
        for at, number in zip(range(0, count * width, width), instruction.joins, strict=True)
    ]


class Rewriter:
    """Makes new calls for a program. They are numbered behind its instructions, new blocks behind its blocks.

    sizes: {intermediate block: bytes}, those of the program and the new ones.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._next_number = 1 + max((i.number for i in program.instructions), default=0)
        self._next_block = program.next_block
        self.sizes = dict(program.sizes)

    def new_block(self, nbytes: int) -> int:
        """The number of a block that no other call has."""
        block, self._next_block = self._next_block, self._next_block + 1
        self.sizes[block] = nbytes
        return block

    def new_operand(self, shape: Shape, dtype: DType, axes: Iterable[int] | None = None) -> Operand:
        """A tensor without gaps over a block of its own. axes: from the outermost to the innermost; None: C order."""
        order = tuple(range(len(shape)) if axes is None else axes)
        operand = Operand(-1, shape, dtype, laid_out(shape, order, dtype.itemsize), 0)
        return operand._replace(block=self.new_block(operand.nbytes))

    def new_rows(self, rows: int, columns: int, dtype: DType) -> Operand:
        """A matrix over a block of its own, with its rows as far apart as the target wants them."""
        unit = self._program.target.row_bytes
        operand = Operand(-1, (rows, columns), dtype, (-(-columns * dtype.itemsize // unit) * unit, dtype.itemsize), 0)
        return operand._replace(block=self.new_block(operand.stop))

    def call(
        self,
        model: Instruction,
        operands: tuple[Operand | None, ...],
        kernel: str = "",
        settings: Settings | None = None,
    ) -> Instruction:
        """A new instruction that does for these operands what the model does, or another kernel."""
        kernel, settings = kernel or model.kernel, model.settings if settings is None else settings
        number, self._next_number = self._next_number, self._next_number + 1
        return self._program.target.call(model, kernel, operands, settings, number)

    def replaced(self, placed: Mapping[int, Sequence[Instruction]]) -> Program:
        """The program with other calls at some steps; the same one where there are none.

        placed: {step: the calls that stand there in place of the one that did}.
        """
        if not placed:
            return self._program
        kept = (placed.get(step, [given]) for step, given in enumerate(self._program.instructions))
        return self.program(instruction for some in kept for instruction in some)

    def program(self, instructions: Iterable[Instruction]) -> Program:
        """The program of these instructions, over the blocks that they use."""
        made = tuple(instructions)
        used = {operand.block for i in made for operand in i.operands if operand is not None}
        sizes = {block: nbytes for block, nbytes in self.sizes.items() if block in used}
        return replace(self._program, instructions=made, sizes=sizes)


def narrow(operand: Operand, axis: int, start: int, stop: int) -> Operand:
    """The part of a tensor from index `start` to below `stop` of an axis."""
    shape = tuple(stop - start if i == axis else extent for i, extent in enumerate(operand.shape))
    return operand._replace(shape=shape, offset=operand.offset + start * operand.strides[axis])
