"""The derivative of an activation within that of the batch normalisation before it, if the kernel set does both in one.

    recorded:   dz = relu'(dy, y);  dx, dgamma, dbeta = batch_norm'(dz, x, ...)
    here:       dx, dgamma, dbeta = (both at once)(dy, x, beta, ...)

What the activation was given is worked out again from x, by the same arithmetic, so that y need not be kept. That is
done where nothing else of the backward part reads y. Where a convolution's gradient does, y is there anyway, and takes
less time as a mask.
"""

from __future__ import annotations

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.operation import Instruction, Phase
from singa_lite.passes.program import Program
from singa_lite.passes.uses import Uses

NORM, FUSED = "batch_norm_derivative", "batch_norm_activation_derivative"
#: What `fuse` made of the forward part.
FORWARD = "batch_norm_activation"


def masked_within(program: Program) -> Program:
    """Replace each such pair, at the step of the second, where `fuse` has joined the forward part.

    The activation's derivative must be a whole intermediate block that nothing but the normalisation's reads, and the
    activation's result one that nothing else reads behind the forward part.
    """
    if not any(kernel == NORM for kernel, _ in program.target.fusions):
        return program
    uses = Uses(program.instructions)
    instructions = program.instructions
    result: list[Instruction | None] = list(instructions)
    for step, norm in enumerate(instructions):
        first = _masking(program, uses, step) if norm.kernel == NORM else None
        forward = None if first is None else _forward(program, uses, instructions[first])
        if first is not None and forward is not None and _may_join(program, uses, (forward, first, step)):
            result[first] = None
            result[step] = _one(program, instructions[forward], instructions[first], norm)
    kept = [instruction for instruction in result if instruction is not None]
    return program.with_instructions(kept) if len(kept) < len(result) else program


def _masking(program: Program, uses: Uses, step: int) -> int | None:
    """The step of the activation's derivative whose result this normalisation's takes, and nothing else does."""
    dz = program.instructions[step].by_name["dy"]
    if dz is None or program.sizes.get(dz.block) != dz.nbytes or len(uses.steps[dz.block]) != 2:
        return None
    first = uses.steps[dz.block][0]
    masking = program.instructions[first]
    return first if masking.kernel.endswith("_derivative") and masking.operands[2:] == (dz,) else None


def _forward(program: Program, uses: Uses, masking: Instruction) -> int | None:
    """The step of the normalisation whose activated result the activation's derivative takes for its mask."""
    y = masking.operands[1]
    writers = uses.writers[y.block] if y is not None else []
    if len(writers) != 1:
        return None
    forward = program.instructions[writers[0]]
    if forward.kernel != FORWARD or forward.by_name["y"] != y:
        return None
    activation = str(forward.settings["activation"])
    fits = masking.kernel == f"{activation}_derivative" and (NORM, activation) in program.target.fusions
    return writers[0] if fits else None


def _may_join(program: Program, uses: Uses, steps: tuple[int, int, int]) -> bool:
    """Whether all is there still at the last of the steps (forward, masking, norm) as it was at those before it.

    Kernels may normalise tensors that lie otherwise by other arithmetic, so all must lie alike.
    """
    forward, masking, norm = (program.instructions[step] for step in steps)
    given, named, dy = forward.by_name, norm.by_name, masking.operands[0]
    if any(given[name] != named[name] for name in ("x", "gamma", "mean", "inv_std")):
        return False
    y = given["y"]
    if y is None or any(_is_behind(program, step) for step in uses.steps[y.block] if step != steps[1]):
        return False
    tensors = given["x"], y, dy, named["dy"], named["dx"]
    if len({tensor and tensor[1:4] for tensor in tensors}) > 1:
        return False
    kept = [(given[name], steps[0] - 1) for name in ("x", "gamma", "beta")]
    kept += [(given[name], steps[0]) for name in ("mean", "inv_std")]
    kept += [(dy, steps[1])]
    return not any(o is None or uses.is_written(o.block, after, steps[2] - 1) for o, after in kept)


def _is_behind(program: Program, step: int) -> bool:
    """Whether the instruction there is behind the forward part."""
    return program.instructions[step].phase != Phase.FORWARD


def _one(program: Program, forward: Instruction, masking: Instruction, norm: Instruction) -> Instruction:
    """Both derivatives in one."""
    named = norm.by_name | {"dy": masking.operands[0], "beta": forward.by_name["beta"]}
    operands = tuple(named[name] for name in SIGNATURES[FUSED].tensors)
    return program.target.call(norm, FUSED, operands, {"activation": forward.settings["activation"]})
