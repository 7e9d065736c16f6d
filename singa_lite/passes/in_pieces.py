"""Large gradients are summed over the ranks in pieces, so that what comes from the others needs little memory.

    whole:      begin G             wait G           update G
    in pieces:  begin G0, wait G0, begin G1, wait G1, ...     update G

`tiles.py` does more where it can: there the gradient itself never exists whole. Which pieces there are goes by the
gradient's shape alone, here and there, and not by the batch: ranks that have batches of unequal sizes plan equal sums.
"""

from __future__ import annotations

from collections.abc import Iterator

from singa_lite.common.strides import memory_order
from singa_lite.kernels.collective import collective_of
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.operation import Instruction, Operand
from singa_lite.passes.collectives import BEGIN, WAIT, has_any, kind_of
from singa_lite.passes.program import Program
from singa_lite.passes.rewriter import Rewriter, narrow

#: Sums of fewer pieces stay whole.
LEAST_PIECES = 4


def summed_in_pieces(program: Program) -> Program:
    """Cut each sum of at least LEAST_PIECES times the target's `tile_bytes`, along its outermost axis."""
    if not has_any(program):
        return program
    return _Cutting(program).result()


def landing(make: Rewriter, call: Instruction, values: Operand) -> Operand:
    """Where a piece's parts come in from the other ranks."""
    elements = 1
    for extent in values.shape:
        elements *= extent
    return make.new_operand((collective_of(call.settings).landing_elements(elements),), values.dtype)


class _Cutting:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.make = Rewriter(program)

    def result(self) -> Program:
        made: list[Instruction] = []
        begun: dict[int, Instruction] = {}  # {block of the landing: the beginning of a sum that is cut}
        for instruction in self.program.instructions:
            kind, values = kind_of(instruction), instruction.operands[0] if instruction.operands else None
            may_be_cut = kind in (BEGIN, WAIT) and SIGNATURES[instruction.kernel].facts.by_elements
            if not may_be_cut or values is None or not self._is_large(values):
                made.append(instruction)
                continue
            came = instruction.operands[1]
            if came is None:
                raise ValueError("a sum over the ranks has a landing")
            if kind == BEGIN:
                begun[came.block] = instruction
            else:
                made += self._in_pieces(begun[came.block], instruction, values)
        return self.make.program(made) if begun else self.program

    def _in_pieces(self, begin: Instruction, wait: Instruction, values: Operand) -> Iterator[Instruction]:
        """Each begun where the whole is waited for, which is where it was begun until the pass `flight`."""
        for piece in self._pieces(values):
            operands = piece, landing(self.make, begin, piece), begin.operands[2]
            yield self.make.call(begin, operands)
            yield self.make.call(wait, operands)

    def _is_large(self, values: Operand) -> bool:
        return len(values.shape) > 1 and values.nbytes >= LEAST_PIECES * self.program.target.tile_bytes

    def _pieces(self, values: Operand) -> Iterator[Operand]:
        axis = memory_order(values.shape, values.strides)[0]
        extent = values.shape[axis]
        rows = max(1, self.program.target.tile_bytes * extent // values.nbytes)
        for start in range(0, extent, rows):
            yield narrow(values, axis, start, min(start + rows, extent))
