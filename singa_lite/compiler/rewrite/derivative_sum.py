"""The sum of two derivatives within the derivative of the normalisation that makes one of them.

    recorded:   d, dgamma, dbeta = batch_norm'(dy, x, ...);  dx = other + d
    here:       dx, dgamma, dbeta = (both at once)(dy, x, ..., other)

In a densely connected net each normalisation's derivative is added so to what came from the layers behind.
"""

from __future__ import annotations

from singa_lite.compiler.ir.laws import SUM_OF_DERIVATIVES
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.uses import Uses
from singa_lite.compiler.rewrite.by_law import Replacing
from singa_lite.compiler.rewrite.law_moves import CallPosition
from singa_lite.compiler.rewrite.law_places import Place, is_whole_block, places
from singa_lite.compiler.rewrite.replaced import Join, replaced

FUSED = "batch_norm_derivative_add"
AT = (CallPosition(0, 0),)


def added_within(program: Program) -> Program:
    """Replace each such pair, at the step of the first, if the kernel set does both, unless the floor rises.

    The normalisation's result must be a whole intermediate block that nothing but the sum reads, and the sum's one that
    is new there. The other derivative may have gaps, as a piece of a larger one has.
    """
    if (FUSED, "") not in program.target.fusions:
        return program
    replacing = Replacing(program)
    found = [place for law in SUM_OF_DERIVATIVES for place in places(program, replacing.uses, law)]
    joins = [
        Join(place.steps[0], place.steps[1], *replacing.made(place, AT))
        for place in sorted(found, key=lambda place: place.steps)
        if _fits(program, replacing.uses, place) and replacing.may_put(place, AT)
    ]
    return replaced(program, joins)


def _fits(program: Program, uses: Uses, place: Place) -> bool:
    """Whether all have one shape, and the sum's block is a whole one that is new there."""
    dx, other, total = (place.named[word] for word in ("d", "other", "dx"))
    alike = total[1:4] == dx[1:4] and other[1:3] == dx[1:3]
    return alike and is_whole_block(program, total) and uses.steps[total.block][0] == place.steps[1]
