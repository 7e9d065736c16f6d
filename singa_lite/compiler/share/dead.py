"""Instructions whose results nobody uses are left out."""

from __future__ import annotations

from singa_lite.compiler.ir.collectives import kind_of
from singa_lite.compiler.ir.program import Program


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
