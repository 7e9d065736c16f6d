"""The gradient of a table that is used twice: rows that occur are added to what a product gives.

    recorded:   g = d^T @ x;  e = gradient of the rows by ids and dy;  s = g + e;  update by s
    here:       g = d^T @ x;  g += the sums of dy for the rows that occur;  update by g

So an embedding and a head that share a table (`layers.TiedDense`) need one gradient of its size, and no other.
"""

from __future__ import annotations

from singa_lite.compiler.ir.laws import ADDED_BY_ROWS
from singa_lite.compiler.ir.operation import Instruction, Operand, over_blocks
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.rewrite.by_law import Place, Replacing

ADDED = "embedding_gradient_add"


def added_by_rows(program: Program) -> Program:
    """Put `embedding_gradient_add` in the place of each `embedding_gradient` and of the sum that it is for.

    Both terms must be whole intermediate blocks that nothing else uses behind the sum, and lie alike.
    """
    replacing = Replacing(program)
    result: list[Instruction | None] = list(program.instructions)
    renamed = dict[int, int]()
    for place in replacing.places(*ADDED_BY_ROWS):
        (step, later), named = place.steps, place.named
        if result[step] is not program.instructions[step] or not _may_join(replacing, place):
            continue
        instruction, term, total = program.instructions[step], named["t"], named["s"]
        operands, number = (named["ids"], named["dy"], term), program.instructions[later].number
        result[step] = None
        result[later] = program.target.call(instruction, ADDED, operands, instruction.settings, number)
        renamed[total.block] = renamed.get(term.block, term.block)
    return program.with_instructions([over_blocks(i, renamed) for i in result if i is not None]) if renamed else program


def _may_join(replacing: Replacing, place: Place) -> bool:
    """Whether the rows are for this sum alone, the other term ends there, and what they are made of is there still."""
    (step, later), rows, term, total = place.steps, *(place.named[word] for word in ("e", "t", "s"))
    uses = replacing.uses
    if step > later or not replacing.is_local(place, "e"):
        return False
    if not all(_is_whole_block(replacing.program, operand, rows) for operand in (term, total)):
        return False
    alone = uses.steps[term.block][-1] == later == uses.steps[total.block][0] and term.block != total.block
    changed = any(uses.is_written(place.named[word].block, step, later) for word in ("ids", "dy"))
    return alone and not changed and term.block != rows.block


def _is_whole_block(program: Program, operand: Operand, like: Operand) -> bool:
    """Whether it is a whole intermediate block, and lies as the other one."""
    return operand[1:] == like[1:] and program.sizes.get(operand.block) == operand.nbytes
