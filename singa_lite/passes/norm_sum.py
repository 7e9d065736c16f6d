"""A sum behind a batch normalisation within its call, with the activation that `fuse` put into the sum.

    recorded:   z, mean, inv_std = batch_norm(x, ...);  y = relu(z + other)
    here:       y, mean, inv_std = (both at once)(x, ..., other)

That is how each block of a residual net ends. z is never stored, and the repeat by kept statistics gives y itself.
"""

from __future__ import annotations

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.operation import Instruction, Operand
from singa_lite.passes.program import Program
from singa_lite.passes.replaced import Join, replaced
from singa_lite.passes.uses import Uses

NORM, FUSED = "batch_norm", "batch_norm_add"
SUMS = "add", "add_activation"


def summed_within(program: Program) -> Program:
    """Replace each such pair, at the step of the sum, if the kernel set does both in one, unless the floor rises.

    The normalisation's result must be a whole intermediate block that nothing but the sum reads.
    """
    if not any(kernel == FUSED for kernel, _ in program.target.fusions):
        return program
    uses = Uses(program.instructions)
    joins = []
    for step, addition in enumerate(program.instructions):
        norm = _norm(program, uses, step) if addition.kernel in SUMS else None
        if norm is not None:
            joins.append(Join(step, norm, _one(program, program.instructions[norm], addition)))
    return replaced(program, joins)


def _norm(program: Program, uses: Uses, step: int) -> int | None:
    """The step of the normalisation whose result the sum takes, and nothing else does: of two the later one."""
    addition = program.instructions[step]
    if (FUSED, _activation(addition)) not in program.target.fusions:
        return None
    found = [_writer(program, uses, step, operand) for operand in addition.operands[:2]]
    norms = [norm for norm in found if norm is not None and _may_join(program, uses, norm, step)]
    return max(norms, default=None)


def _activation(addition: Instruction) -> str:
    return str(addition.settings.get("activation", ""))


def _writer(program: Program, uses: Uses, step: int, z: Operand | None) -> int | None:
    """The step of the normalisation that makes this operand of the sum, for it alone."""
    if z is None or program.sizes.get(z.block) != z.nbytes or len(uses.steps[z.block]) != 2:
        return None
    writer = uses.steps[z.block][0]
    norm = program.instructions[writer]
    fits = writer < step and norm.kernel == NORM and norm.by_name["y"] == z
    return writer if fits else None


def _may_join(program: Program, uses: Uses, norm: int, step: int) -> bool:
    """Whether all is there still at the sum's step as it was at the normalisation's, and nobody wants its results yet.

    Kernels may normalise tensors that lie otherwise by other arithmetic, so all must lie alike.
    """
    first, addition = program.instructions[norm], program.instructions[step]
    named = first.by_name
    z, x = named["y"], named["x"]
    if z is None or len({o and o[1:4] for o in (x, *addition.operands)}) > 1:
        return False
    if addition.operands.count(z) != 1:
        return False
    read = [named[name] for name in ("x", "gamma", "beta")]
    if any(o is None or uses.is_written(o.block, norm, step) for o in read):
        return False
    moved = [named[name] for name in ("running_mean", "running_var", "mean", "inv_std")]
    return not any(o is None or any(norm < use <= step for use in uses.steps[o.block]) for o in moved)


def _one(program: Program, norm: Instruction, addition: Instruction) -> Instruction:
    """The normalisation with the sum and its activation."""
    z = norm.by_name["y"]
    (other,) = (operand for operand in addition.operands[:2] if operand != z)
    named = norm.by_name | {"other": other, "y": addition.by_name["y"]}
    operands = tuple(named[name] for name in SIGNATURES[FUSED].tensors)
    return program.target.call(norm, FUSED, operands, {**norm.settings, "activation": _activation(addition)})
