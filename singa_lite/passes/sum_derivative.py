"""The sum of two derivatives within the derivative of the activation whose result both are by.

    recorded:   dy = a + b;  dx = relu'(dy, y)
    here:       dx = (both at once)(a, b, y)

A result that two branches read, as in a residual net, gets its derivative in two parts. Their sum is never stored.
"""

from __future__ import annotations

from singa_lite.operation import Instruction
from singa_lite.passes.program import Program
from singa_lite.passes.replaced import replaced
from singa_lite.passes.uses import Uses

FUSED, TAIL = "sum_activation_derivative", "_derivative"


def masked_at_once(program: Program) -> Program:
    """Replace each such pair, at the step of the sum, if the kernel set does both in one.

    The sum must be a whole intermediate block that nothing but the activation's derivative reads, and what that writes
    a block that is new there.
    """
    if not any(kernel == FUSED for kernel, _ in program.target.fusions):
        return program
    uses = Uses(program.instructions)
    result: list[Instruction | None] = list(program.instructions)
    for step, addition in enumerate(program.instructions):
        masking = _masking(program, uses, step) if addition.kernel == "add" else None
        if masking is not None:
            result[step] = _one(program, addition, program.instructions[masking])
            result[masking] = None
    return replaced(program, result)


def _masking(program: Program, uses: Uses, step: int) -> int | None:
    """The step of the activation's derivative that takes the sum, and whose other tensors fit."""
    dy = program.instructions[step].operands[2]
    if dy is None or program.sizes.get(dy.block) != dy.nbytes or len(uses.steps[dy.block]) != 2:
        return None
    later = uses.steps[dy.block][1]
    masking = program.instructions[later]
    activation = masking.kernel.removesuffix(TAIL)
    if (FUSED, activation) not in program.target.fusions or not masking.kernel.endswith(TAIL) or masking.settings:
        return None
    return later if uses.steps[dy.block][0] == step and _may_join(program, uses, step, later) else None


def _may_join(program: Program, uses: Uses, step: int, later: int) -> bool:
    """Whether y is there at the sum already as it is later, and the result's block is free until then.

    What is added may have gaps, as a piece of a larger derivative has.
    """
    a, b, total = program.instructions[step].operands
    dy, y, dx = program.instructions[later].operands
    if y is None or dx is None or dy != total or len({o and o[1:4] for o in (total, y, dx)}) > 1:
        return False
    if any(o is None or o[1:3] != dx[1:3] for o in (a, b)):
        return False
    if program.sizes.get(dx.block) != dx.nbytes or uses.steps[dx.block][0] != later:
        return False
    return not any(step <= writer <= later for writer in uses.writers[y.block])


def _one(program: Program, addition: Instruction, masking: Instruction) -> Instruction:
    """Both in one, in the layer of the activation."""
    _, y, dx = masking.operands
    operands = *addition.operands[:2], y, dx
    return program.target.call(masking, FUSED, operands, {"activation": masking.kernel.removesuffix(TAIL)})
