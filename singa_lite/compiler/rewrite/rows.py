"""Updates by rows: a table's gradient that only plain SGD uses is applied to the rows that occur, and never exists."""

from __future__ import annotations

from singa_lite.compiler.ir.laws import SGD_BY_ROWS
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.rewrite.by_law import Replacing
from singa_lite.compiler.rewrite.law_moves import CallPosition
from singa_lite.compiler.rewrite.law_places import places

AT = (CallPosition(1, 1),)


def applied_by_rows(program: Program) -> Program:
    """Put `sgd_rows` in the place of each `embedding_gradient` and the `sgd` that it is for.

    That holds where the gradient is a whole intermediate block that nothing else uses, and the update has neither
    momentum nor decay, which would move the other rows too.
    """
    replacing = Replacing(program)
    for place in places(program, replacing.uses, SGD_BY_ROWS):
        if replacing.may_put(place, AT):
            replacing.put(place, AT)
    return replacing.result()
