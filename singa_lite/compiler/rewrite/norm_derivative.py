"""The derivative of an activation within that of the batch normalisation before it, if the kernel set does both in one.

    recorded:   dz = relu'(dy, y);  dx, dgamma, dbeta = batch_norm'(dz, x, ...)
    here:       dx, dgamma, dbeta = (both at once)(dy, x, beta, ...)

What the activation was given is worked out again from x, by the same arithmetic, so that y need not be kept. That is
done where nothing else of the backward part reads y. Where a convolution's gradient does, y is there anyway, and takes
less time as a mask.
"""

from __future__ import annotations

from singa_lite.compiler.ir.laws import MASK_OF_NORM
from singa_lite.compiler.ir.operation import Phase
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.uses import Uses
from singa_lite.compiler.rewrite.by_law import Replacing
from singa_lite.compiler.rewrite.law_moves import CallPosition
from singa_lite.compiler.rewrite.law_places import Place, lie_equal, places

NORM = "batch_norm_derivative"
AT = (CallPosition(1, 1),)


def masked_within(program: Program) -> Program:
    """Replace each such pair, at the step of the second, where `fuse` has joined the forward part.

    The activation's derivative must be a whole intermediate block that nothing but the normalisation's reads. Kernels
    may normalise tensors that lie otherwise by other arithmetic, so all must lie alike.
    """
    if not any(kernel == NORM for kernel, _ in program.target.fusions):
        return program
    replacing = Replacing(program)
    for place in places(program, replacing.uses, MASK_OF_NORM):
        pays = (NORM, place.activation) in program.target.fusions and _is_mask_alone(program, replacing.uses, place)
        if pays and lie_equal(place, "x", "y", "dy", "d", "dx") and replacing.may_put(place, AT):
            replacing.put(place, AT)
    return replacing.result()


def _is_mask_alone(program: Program, uses: Uses, place: Place) -> bool:
    """Whether nothing behind the forward part reads the activation's result but as this mask."""
    users = (step for step in uses.steps[place.named["y"].block] if step != place.steps[0])
    return all(program.instructions[step].phase == Phase.FORWARD for step in users)
