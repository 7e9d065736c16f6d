"""VariantRow: one call of a planned step that its kernel can do in several ways, and the way that was chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.target import Target


class VariantRow(NamedTuple):
    """A call. step: where it stands in the plan; variant: the way in which it is done."""

    step: int
    kernel: str
    layer: str
    variant: str


def variant_rows(program: Program) -> list[VariantRow]:
    """Of all calls that can be done in several ways, in the order of the steps."""
    named = ((step, i, _variant(program.target, i)) for step, i in enumerate(program.instructions))
    return [VariantRow(step, i.kernel, i.layer, variant) for step, i, variant in named if variant]


def told_variants(rows: Sequence[VariantRow]) -> list[str]:
    """How many calls of each kernel are done in which way, a line for each kernel."""
    counts = Counter((row.kernel, row.variant) for row in rows)
    kernels = dict.fromkeys(kernel for kernel, _ in counts)
    return [
        f"{kernel}: " + ", ".join(f"{number} {variant}" for (one, variant), number in counts.items() if one == kernel)
        for kernel in kernels
    ]


def called(target: Target, instruction: Instruction) -> str:
    """The kernel of a call, and the way in which it is done where there are several."""
    variant = _variant(target, instruction)
    return f"{instruction.kernel} ({variant})" if variant else instruction.kernel


def _variant(target: Target, instruction: Instruction) -> str:
    return target.variant(instruction.kernel, instruction.operands, instruction.settings)
