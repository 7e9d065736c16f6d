"""Fusion: an operation and the activation behind it become one, which stores the result once."""

from __future__ import annotations

from singa_lite.compiler.ir.laws import ACTIVATED
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.rewrite.by_law import Replacing
from singa_lite.compiler.rewrite.law_moves import CallPosition
from singa_lite.compiler.rewrite.law_places import places

AT = (CallPosition(0, 0),)


def fused(program: Program) -> Program:
    """Give each operation that an activation follows the activation, if the kernel set does the two in one go.

    The result of the first must be a whole intermediate block that nothing but the activation reads.
    """
    together = {kernel for kernel, _ in program.target.fusions}
    laws = [law for law in ACTIVATED if law.left[0].kernel in together]
    if not laws:
        return program
    replacing = Replacing(program)
    for place in (place for law in laws for place in places(program, replacing.uses, law)):
        if (place.law.left[0].kernel, place.activation) in program.target.fusions and replacing.may_put(place, AT):
            replacing.put(place, AT)
    return replacing.result()
