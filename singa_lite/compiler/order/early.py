"""A pass that frees bytes as soon as it can: a sum of two derivatives goes right behind the second one.

    recorded:   dx = conv'(dy); dw = conv''(x, dy); update; total = dz + dx       dz and dx wait through the gradient
    here:       dx = conv'(dy); total = dz + dx; dw = conv''(x, dy); update       one of them does

Where x is made again for the gradient, which takes as much as a block of a residual net needs, that is one derivative
less beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.compiler.ir.program import Program, floor
from singa_lite.compiler.ir.uses import Uses, predecessors
from singa_lite.compiler.share.in_place import in_place


def done_early(program: Program) -> Program:
    """The program with each instruction that ends more bytes than it begins right behind the last one that it needs.

    Only blocks count that nothing between the two uses. The program as it is, where its floor would rise.
    """
    moved = _earlier_places(program)
    if not moved:
        return program
    steps = range(len(program.instructions))
    order = sorted(steps, key=lambda step: (moved[step], 1, step) if step in moved else (step, 0, step))
    early = program.with_instructions([program.instructions[step] for step in order])
    return early if floor(in_place(early)) <= floor(in_place(program)) else program


def _earlier_places(program: Program) -> dict[int, int]:
    """{step of what is to be done earlier: the step that it goes behind}."""
    uses, found = Uses(program.instructions), dict[int, int]()
    for step, before in enumerate(predecessors(program.instructions)):
        behind = before[-1] if before else step
        if behind < step - 1 and _given_back(program, uses, step, behind) > 0:
            found[step] = behind
    return found


def _given_back(program: Program, uses: Uses, step: int, behind: int) -> int:
    """Bytes fewer that live between the two steps where the instruction is done right behind the earlier one."""
    nbytes = 0
    blocks = {o.block for o in program.instructions[step].operands if o is not None and o.block in program.sizes}
    for block in blocks:
        steps = uses.steps[block]
        if steps[0] == step:
            nbytes -= program.rounded(program.sizes[block])
        elif steps[-1] == step and _last_before(steps, step) <= behind:
            nbytes += program.rounded(program.sizes[block])
    return nbytes


def _last_before(steps: Sequence[int], step: int) -> int:
    return max(other for other in steps if other < step)
