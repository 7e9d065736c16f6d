"""What a process takes beside its memory from the device: code, launches and the record, by counting a program's calls.

Measured (`docs/budget.md`, "What the process takes beside the budget"): at most so much for each call, and for each
different one, whose code no other has, what the kernel set says (`KernelSet.code_bytes`).
"""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.operation import Instruction

#: Of each call: its launch, its part of the record, and what planning takes for it at its peak.
A_CALL = 12 << 10
#: What is promised beside every budget: so much of it does not count.
BESIDE = 50 << 20


def launch_bytes(instructions: Sequence[Instruction], code: int) -> int:
    """Bytes that a process takes for these calls beyond BESIDE, which a budget counts; 0 for all but large nets.

    code: of each different call.
    """
    if len(instructions) * (A_CALL + code) <= BESIDE:
        return 0
    different = {_form(instruction) for instruction in instructions} if code else ()
    return max(0, len(instructions) * A_CALL + len(different) * code - BESIDE)


def _form(instruction: Instruction) -> tuple[object, ...]:
    """Equal for calls that share their code."""
    operands = (None if o is None else (o.shape, str(o.dtype), o.strides) for o in instruction.operands)
    return instruction.kernel, repr(instruction.settings), *operands
