"""ReLU behind max pooling instead of before it: the same values, and the larger tensor need not be kept.

max(relu(a), relu(b)) = relu(max(a, b)), to the bit. Going back, a window whose maximum is not above 0 passes nothing on
either way, and in any other the winner is the same element. What the derivative of the ReLU reads is then the pooled
tensor, which the layer behind keeps anyway, so the one before pooling, often four times as large, dies at once.
"""

from __future__ import annotations

from singa_lite.compiler.ir.laws import POOL_FIRST, POOL_FIRST_BOTH_WAYS
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.rewrite.by_law import Replacing
from singa_lite.compiler.rewrite.law_moves import CallPosition
from singa_lite.compiler.rewrite.law_places import places

#: Where the pooling and the activation behind it go, and the derivatives of both.
FORWARD, BACKWARD = [CallPosition(0, 0), CallPosition(0, 1)], [CallPosition(3, 3), CallPosition(3, 2)]


def pool_first(program: Program) -> Program:
    """Exchange each ReLU, and its derivative, with the max pooling behind it, if nothing else uses its result."""
    if "max_pool2d" not in {instruction.kernel for instruction in program.instructions}:
        return program
    replacing = Replacing(program)
    found = [(place, FORWARD) for place in places(program, replacing.uses, POOL_FIRST)]
    both = places(program, replacing.uses, POOL_FIRST_BOTH_WAYS)
    found += [(place, FORWARD + BACKWARD) for place in both]
    for place, at in sorted(found, key=lambda one: one[0].steps):
        if replacing.may_put(place, at):
            replacing.put(place, at)
    return replacing.result()
