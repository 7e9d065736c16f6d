"""Writing an output over an input that dies there, where the kernel allows it."""

from __future__ import annotations

from dataclasses import replace

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.operation import Instruction, Operand
from singa_lite.passes.program import Program


def in_place(program: Program) -> Program:
    """Merge the block of an output into the block of an input, in one walk along the order.

    An input qualifies if the interface lists it for that output, both are whole intermediate blocks of one shape,
    dtype and strides, nobody uses the input's block later, and the instruction has no other operand over it. The
    output must be new there. Merging never raises the sum of live bytes at any step.
    """
    walk = _Walk(program)
    return program.with_instructions([walk.rewritten(place, i) for place, i in enumerate(program.instructions)])


class _Walk:
    def __init__(self, program: Program) -> None:
        self.sizes = program.sizes
        self.home: dict[int, int] = {}  # merged block: the block whose bytes it uses
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        for place, instruction in enumerate(program.instructions):
            for operand in instruction.operands:
                if operand is not None:
                    self.first.setdefault(operand.block, place)
                    self.last[operand.block] = place

    def rewritten(self, place: int, instruction: Instruction) -> Instruction:
        signature = SIGNATURES[instruction.kernel]
        operands = [self._moved(operand) for operand in instruction.operands]
        for output, inputs in signature.overwrites.items():
            target = signature.tensors.index(output)
            for name in inputs:
                source = signature.tensors.index(name)
                if self._fits(place, operands, target, source):
                    self._merge(operands, target, source)
                    break
        if all(a is b for a, b in zip(operands, instruction.operands, strict=True)):
            return instruction
        return replace(instruction, operands=tuple(operands))

    def _moved(self, operand: Operand | None) -> Operand | None:
        if operand is None or operand.block not in self.home:
            return operand
        return operand._replace(block=self.home[operand.block])

    def _fits(self, place: int, operands: list[Operand | None], target: int, source: int) -> bool:
        output, given = operands[target], operands[source]
        if output is None or given is None or output.block == given.block:
            return False
        sizes = self.sizes
        if output.block not in sizes or given.block not in sizes or sizes[output.block] != sizes[given.block]:
            return False
        alike = output[1:] == given[1:] and output.nbytes == sizes[output.block]
        used_again = any(o is not None and o.block == given.block for i, o in enumerate(operands) if i != source)
        return (
            alike and not used_again and self.first[output.block] == place and self.last[given.block] == place
        )

    def _merge(self, operands: list[Operand | None], target: int, source: int) -> None:
        output, given = operands[target], operands[source]
        if output is None or given is None:
            return
        self.home[output.block] = given.block
        self.last[given.block] = self.last[output.block]
        operands[target] = output._replace(block=given.block)
