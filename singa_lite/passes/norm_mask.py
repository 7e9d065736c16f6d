"""The derivative of an activation within that of the normalisation before it, masked by the activation's result.

    recorded:   dz = relu'(dy, y);  dx, dgamma, dbeta = batch_norm'(dz, x, ...)
    here:       dx, dgamma, dbeta = (both at once)(dy, x, y, ...)

The sums of the normalisation's derivative then find what is masked in the caches. That is for where y is there anyway;
`norm_derivative.py` has the others.
"""

from __future__ import annotations

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.operation import Instruction
from singa_lite.passes.norm_derivative import FUSED, NORM, masking_of
from singa_lite.passes.program import Program
from singa_lite.passes.replaced import replaced
from singa_lite.passes.uses import Uses

#: {kernel: the one that masks besides}.
MASKING = {NORM: FUSED, "batch_norm_derivative_add": "batch_norm_derivative_add"}


def masked_by_result(program: Program) -> Program:
    """Replace each such pair, at the step of the second, if the kernel set does both and the floor does not rise.

    The activation's derivative must be a whole intermediate block that nothing but the normalisation's reads.
    """
    uses = Uses(program.instructions)
    result: list[Instruction | None] = list(program.instructions)
    for step, norm in enumerate(program.instructions):
        first = masking_of(program, uses, step) if norm.kernel in MASKING else None
        if first is not None and _may_join(program, uses, first, step):
            result[step] = _one(program, program.instructions[first], norm)
            result[first] = None
    return replaced(program, result)


def _may_join(program: Program, uses: Uses, first: int, step: int) -> bool:
    """Whether the kernel set does it, and what is masked and the mask are there still, lying alike."""
    masking, norm = program.instructions[first], program.instructions[step]
    kernel = NORM if norm.kernel == NORM else MASKING[norm.kernel]
    if (kernel, _activation(masking)) not in program.target.fusions or norm.settings.get("activation"):
        return False
    (dy, y, _), named = masking.operands, norm.by_name
    tensors = dy, y, named["dy"], named["x"], named["dx"]
    if masking.settings or len({tensor and tensor[1:4] for tensor in tensors}) > 1:
        return False
    return not any(o is None or uses.is_written(o.block, first, step - 1) for o in (dy, y))


def _activation(masking: Instruction) -> str:
    return masking.kernel.removesuffix("_derivative")


def _one(program: Program, masking: Instruction, norm: Instruction) -> Instruction:
    """Both derivatives in one."""
    dy, y, _ = masking.operands
    kernel = MASKING[norm.kernel]
    named = norm.by_name | {"dy": dy, "y": y, "beta": None}
    operands = tuple(named[name] for name in SIGNATURES[kernel].tensors)
    return program.target.call(norm, kernel, operands, {"activation": _activation(masking)})
