"""A sum behind a batch normalisation within its call, with the activation that `fuse` put into the sum.

    recorded:   z, mean, inv_std = batch_norm(x, ...);  y = relu(z + other)
    here:       y, mean, inv_std = (both at once)(x, ..., other)

That is how each block of a residual net ends. z is never stored, and the repeat by kept statistics gives y itself.
"""

from __future__ import annotations

from singa_lite.compiler.ir.laws import SUMS_OF_NORMS
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.rewrite.by_law import Replacing
from singa_lite.compiler.rewrite.law_moves import CallPosition
from singa_lite.compiler.rewrite.law_places import Place, lie_equal, places
from singa_lite.compiler.rewrite.replaced import Join, replaced

FUSED = "batch_norm_add"
AT = (CallPosition(1, 0),)


def summed_within(program: Program) -> Program:
    """Replace each such pair, at the step of the sum, if the kernel set does both in one, unless the floor rises.

    The normalisation's result must be a whole intermediate block that nothing but the sum reads; of two whose results
    are added the later one takes the sum. Kernels may normalise tensors that lie otherwise by other arithmetic, so all
    must lie alike.
    """
    if not any(kernel == FUSED for kernel, _ in program.target.fusions):
        return program
    replacing = Replacing(program)
    found: dict[int, Place] = {}  # by the step of the sum
    for place in (place for law in SUMS_OF_NORMS for place in places(program, replacing.uses, law)):
        step = place.steps[1]
        wanted = (FUSED, str(program.instructions[step].settings.get("activation", ""))) in program.target.fusions
        if wanted and lie_equal(place, "x", "z", "other", "y") and replacing.may_put(place, AT):
            found[step] = max(place, found.get(step, place), key=lambda place: place.steps)
    joins = [Join(step, found[step].steps[0], *replacing.made(found[step], AT)) for step in sorted(found)]
    return replaced(program, joins)
