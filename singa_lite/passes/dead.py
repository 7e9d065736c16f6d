"""Instructions whose results nobody uses are left out."""

from __future__ import annotations

from singa_lite.passes.collectives import kind_of
from singa_lite.passes.program import Program


def without_dead(program: Program) -> Program:
    """Keep what writes a held block, and what those need, directly or not; and all sums over the ranks, of which this
    one may not need what others do.
    """
    needed: set[int] = set()
    kept = []
    for instruction in reversed(program.instructions):
        written = {operand.block for operand in instruction.writes}
        if kind_of(instruction) or any(block in needed or block not in program.sizes for block in written):
            needed.update(operand.block for operand in instruction.reads)
            kept.append(instruction)
    return program.with_instructions(kept[::-1]) if len(kept) < len(program.instructions) else program
