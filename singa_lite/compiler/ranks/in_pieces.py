"""Large gradients are summed over the ranks in pieces, so that what comes from the others needs little memory.

    whole:      begin G             wait G           update G
    in pieces:  begin G0, wait G0, begin G1, wait G1, ...     update G

`tiles.py` does more where it can: there the gradient itself never exists whole. Which pieces there are goes by the
gradient's shape alone, here and there, and not by the batch: ranks that have batches of unequal sizes plan equal sums.
"""

from __future__ import annotations

from collections.abc import Iterator

from singa_lite.common.strides import memory_order
from singa_lite.compiler.ir.collectives import BEGIN, WAIT, has_any, kind_of, landing
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.rewriter import Rewriter, narrow
from singa_lite.compiler.ranks.strips import is_too_much, summed_by_strips
from singa_lite.kernels.interface import SIGNATURES

#: Sums of fewer pieces stay whole.
LEAST_PIECES = 4


def summed_in_pieces(program: Program) -> Program:
    """Cut each sum of at least LEAST_PIECES times the target's `tile_bytes`, along its outermost axis.

    One of a single gradient that leaves each rank its part is cut into strips, where it would be more than may be under
    way.
    """
    if not has_any(program):
        return program
    return _Cutting(program).result()


class _Cutting:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.make = Rewriter(program)
        #: Blocks that are written in parts: several small gradients are summed in them.
        self.packed = {
            operand.block
            for instruction in program.instructions
            for operand in instruction.writes
            if operand.nbytes < program.sizes.get(operand.block, 0)
        }

    def result(self) -> Program:
        made: list[Instruction] = []
        begun: dict[int, Instruction] = {}  # {block of the landing: the beginning of a sum that is cut}
        for instruction in self.program.instructions:
            kind, values = kind_of(instruction), instruction.operands[0] if instruction.operands else None
            if kind not in (BEGIN, WAIT) or values is None or not self._is_to_be_cut(instruction, values):
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

    def _is_to_be_cut(self, call: Instruction, values: Operand) -> bool:
        if SIGNATURES[call.kernel].facts.by_elements:
            return self._is_large(values)
        return is_too_much(call) and values.block not in self.packed

    def _in_pieces(self, begin: Instruction, wait: Instruction, values: Operand) -> Iterator[Instruction]:
        """Each begun where the whole is waited for, which is where it was begun until the pass `flight`."""
        if is_too_much(begin):
            yield from summed_by_strips(self.make, begin, wait, self.program.target.tile_bytes)
            return
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
