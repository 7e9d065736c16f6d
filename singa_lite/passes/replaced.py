"""What a pass that joins instructions gives back: the program with the joined ones, where its floor is no higher."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.operation import Instruction
from singa_lite.passes.in_place import in_place
from singa_lite.passes.program import Program, floor


def replaced(program: Program, instructions: Sequence[Instruction | None]) -> Program:
    """The program with these in the place of its own, None for those that are within others now.

    The program itself where none is, or where the floor would rise: the scratch of a joined call may be wanted where
    more lives than at either of the two.
    """
    kept = [instruction for instruction in instructions if instruction is not None]
    if len(kept) == len(program.instructions):
        return program
    made = program.with_instructions(kept)
    return made if floor(in_place(made)) <= floor(in_place(program)) else program
