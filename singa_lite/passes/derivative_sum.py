"""The sum of two derivatives within the derivative of the normalisation that makes one of them.

    recorded:   d, dgamma, dbeta = batch_norm'(dy, x, ...);  dx = other + d
    here:       dx, dgamma, dbeta = (both at once)(dy, x, ..., other)

In a densely connected net each normalisation's derivative is added so to what came from the layers behind.
"""

from __future__ import annotations

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.operation import Instruction, Operand
from singa_lite.passes.program import Program
from singa_lite.passes.replaced import Join, replaced
from singa_lite.passes.uses import Uses

NORM, FUSED = "batch_norm_derivative", "batch_norm_derivative_add"


def added_within(program: Program) -> Program:
    """Replace each such pair, at the step of the first, if the kernel set does both, unless the floor rises.

    The normalisation's result must be a whole intermediate block that nothing but the sum reads, and the sum's one that
    is new there. The other derivative may have gaps, as a piece of a larger one has.
    """
    if (FUSED, "") not in program.target.fusions:
        return program
    uses = Uses(program.instructions)
    joins = []
    for step, norm in enumerate(program.instructions):
        later = _sum(program, uses, step) if norm.kernel == NORM else None
        if later is not None:
            joins.append(Join(step, later, _one(program, norm, program.instructions[later])))
    return replaced(program, joins)


def _sum(program: Program, uses: Uses, step: int) -> int | None:
    """The step of the sum that takes the normalisation's derivative, and nothing else does."""
    dx = program.instructions[step].by_name["dx"]
    if dx is None or program.sizes.get(dx.block) != dx.nbytes or len(uses.steps[dx.block]) != 2:
        return None
    later = uses.steps[dx.block][1]
    addition = program.instructions[later]
    if uses.steps[dx.block][0] != step or addition.kernel != "add" or addition.operands.count(dx) != 1:
        return None
    return later if _may_join(program, uses, step, later, dx) else None


def _may_join(program: Program, uses: Uses, step: int, later: int, dx: Operand) -> bool:
    """Whether the other derivative is there already as it is later, and the sum's block is free until then."""
    total, other = program.instructions[later].operands[2], _other(program.instructions[later], dx)
    if total is None or other is None or total[1:4] != dx[1:4] or other[1:3] != dx[1:3]:
        return False
    if program.sizes.get(total.block) != total.nbytes or uses.steps[total.block][0] != later:
        return False
    return not any(step <= writer <= later for writer in uses.writers[other.block])


def _other(addition: Instruction, dx: Operand | None) -> Operand | None:
    """What is added."""
    a, b, _ = addition.operands
    return b if a == dx else a


def _one(program: Program, norm: Instruction, addition: Instruction) -> Instruction:
    """The derivative with the sum."""
    named = norm.by_name | {"other": _other(addition, norm.by_name["dx"]), "dx": addition.operands[2]}
    operands = tuple(named[name] for name in SIGNATURES[FUSED].tensors)
    return program.target.call(norm, FUSED, operands, {})
