"""Carry: what was chosen to drop for one size of a batch, said of the record of another one.

Records of one net for two sizes are the same calls over other shapes, and what is best to drop is nearly the same where
the limit is the same share. So a search may begin from what another one found. It begins so within one answer alone,
of `largest_batch` or of an error: the plan of a step is always searched for from the step's own record, so that it is
the same whatever was asked before.
"""

from __future__ import annotations

from typing import NamedTuple

from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program


class HeldLevels(NamedTuple):
    """The levels at which values are held. program: before it has repeats; levels: of its blocks, see `repeats.py`."""

    program: Program
    levels: dict[int, int]


def matched_levels(chosen: HeldLevels, program: Program) -> dict[int, int]:
    """The levels of the same blocks in another program. Blocks are matched by the calls that use them, and these by
    their numbers; of those that are not in both records the levels are left out.
    """
    by_number = {one.number: one for one in program.instructions}
    to: dict[int, int] = {}
    for one in chosen.program.instructions:
        other = by_number.get(one.number)
        if other is not None and _is_same_call(one, other):
            for mine, theirs in zip(one.operands, other.operands, strict=True):
                if mine is not None and theirs is not None:
                    to.setdefault(mine.block, theirs.block)
    return {to[block]: level for block, level in chosen.levels.items() if block in to}


def _is_same_call(one: Instruction, other: Instruction) -> bool:
    return one.kernel == other.kernel and len(one.operands) == len(other.operands)
