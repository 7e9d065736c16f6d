"""What dies: an output is written over an input that dies there, and results that nobody uses are not made."""

from __future__ import annotations

from singa_lite.compiler.ir.collectives import kind_of
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.remembered import remembered
from singa_lite.kernels.interface import SIGNATURES


def in_place(program: Program) -> Program:
    """Merge the block of an output into the block of an input, in one walk along the order.

    An input qualifies if the interface lists it for that output, both are all of an intermediate block, of one shape,
    dtype and strides, nobody uses the input's block later, and the instruction has no other operand over it. The
    output must be new there. Merging never raises the sum of live bytes at any step.
    """
    walk = _Walk(program)
    return program.with_instructions([walk.rewritten(step, i) for step, i in enumerate(program.instructions)])


@remembered(256)
def _pairs(kernel: str) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """For each output that may share bytes, its index among the arguments, and those of the inputs it may use."""
    signature = SIGNATURES[kernel]
    index_of = signature.tensors.index
    return tuple((index_of(output), tuple(map(index_of, inputs))) for output, inputs in signature.overwrites.items())


class _Walk:
    def __init__(self, program: Program) -> None:
        self.sizes = program.sizes
        self.home: dict[int, int] = {}  # merged block: the block whose bytes it uses
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        first, last = self.first, self.last
        for step, instruction in enumerate(program.instructions):
            for operand in instruction.operands:
                if operand is not None:
                    block = operand.block
                    if block not in first:
                        first[block] = step
                    last[block] = step

    def rewritten(self, step: int, instruction: Instruction) -> Instruction:
        home, pairs = self.home, _pairs(instruction.kernel)
        moved = any(o is not None and o.block in home for o in instruction.operands)
        if not moved and not pairs:
            return instruction
        operands = [self._moved(operand) for operand in instruction.operands] if moved else [*instruction.operands]
        for target, sources in pairs:
            source = next((s for s in sources if self._fits(step, operands, target, s)), None)
            if source is not None:
                self._merge(operands, target, source)
                moved = True
        return instruction.with_operands(tuple(operands)) if moved else instruction

    def _moved(self, operand: Operand | None) -> Operand | None:
        if operand is None or operand.block not in self.home:
            return operand
        return operand._replace(block=self.home[operand.block])

    def _fits(self, step: int, operands: list[Operand | None], target: int, source: int) -> bool:
        output, given = operands[target], operands[source]
        if output is None or given is None or output.block == given.block:
            return False
        if self.first[output.block] != step or self.last[given.block] != step or output[1:] != given[1:]:
            return False
        size = self.sizes.get(output.block)
        if size is None or size != self.sizes.get(given.block) or size != output.stop:
            return False
        return not any(o is not None and o.block == given.block for i, o in enumerate(operands) if i != source)

    def _merge(self, operands: list[Operand | None], target: int, source: int) -> None:
        output, given = operands[target], operands[source]
        if output is None or given is None:
            return
        self.home[output.block] = given.block
        self.last[given.block] = self.last[output.block]
        operands[target] = output._replace(block=given.block)


def without_dead(program: Program) -> Program:
    """Drops instructions whose results nobody uses. Kept are those that write a held block, those they need, directly
    or not, and all sums over the ranks, as other ranks may need a sum that this one does not.
    """
    needed: set[int] = set()
    kept = []
    for instruction in reversed(program.instructions):
        written = {operand.block for operand in instruction.writes}
        if kind_of(instruction) or any(block in needed or block not in program.sizes for block in written):
            needed.update(operand.block for operand in instruction.reads)
            kept.append(instruction)
    return program.with_instructions(kept[::-1]) if len(kept) < len(program.instructions) else program
