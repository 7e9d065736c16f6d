"""The gradients of a linear layer in one: the weight's product and the bias's sums read the same derivative once."""

from __future__ import annotations

from singa_lite.compiler.ir.laws import LINEAR_GRADIENT
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.rewrite.by_law import Replacing
from singa_lite.compiler.rewrite.law_moves import CallPosition
from singa_lite.compiler.rewrite.law_places import places

#: What a kernel set does in one go: the product x^T @ dy, and the sums of dy over its rows.
PAIR = ("matmul", "bias_gradient")


def joined(program: Program) -> Program:
    """Replace each such pair by `linear_gradient`, at the step of the first, if the kernel set has it."""
    if PAIR not in program.target.fusions:
        return program
    replacing = Replacing(program)
    found = places(program, replacing.uses, LINEAR_GRADIENT)
    last = {place.steps[1]: place for place in found}  # of several products of one dy
    for _, place in sorted(last.items()):
        at = [CallPosition(place.steps.index(min(place.steps)), 0)]
        if replacing.may_put(place, at):
            replacing.put(place, at)
    return replacing.result()
