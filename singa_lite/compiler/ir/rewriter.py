"""Rewriter: what a pass that puts new calls in the place of recorded ones numbers them and their blocks by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from singa_lite.common.array_types import DType
from singa_lite.common.strides import laid_out
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program
from singa_lite.kernels.kernel_set import Settings
from singa_lite.tensor import Shape


class Rewriter:
    """New instructions are numbered behind those of the program, new blocks behind its blocks.

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
