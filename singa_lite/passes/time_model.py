"""Estimated seconds of a kernel call, by a rule for its class: what a repeat costs is weighed against what it frees.

Products go by their multiply-adds, everything else by the bytes that it reads and writes. The two rates stand for a
few cores of a CPU; only their ratio decides which repeats are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from singa_lite.operation import Instruction

#: Floating-point operations and bytes a second, and seconds of a call that does next to nothing.
FLOPS = 100e9
BYTES = 12e9
CALL = 3e-6


def seconds(instruction: Instruction) -> float:
    """Of one call. A roofline (Williams and others, CACM 2009): the slower of computing and of reading and writing."""
    moved = sum(operand.nbytes for operand in instruction.operands if operand is not None)
    return CALL + max(moved / BYTES, flops(instruction) / FLOPS)


def slowdown(instructions: Sequence[Instruction]) -> float:
    """The time of the repeats as a share of that of all others."""
    extra = sum(seconds(i) for i in instructions if i.repeats is not None)
    return extra / sum(seconds(i) for i in instructions if i.repeats is None) if extra else 0.0


def flops(instruction: Instruction) -> int:
    """Two for each multiply-add of a convolution or a product of matrices, 0 of any other kernel."""
    named, kernel = instruction.by_name, instruction.kernel
    if kernel == "matmul":
        a, y = named["a"], named["y"]
        return 2 * prod(y.shape) * a.shape[-2 if instruction.settings["transpose_a"] else -1] if a and y else 0
    weight, y = named.get("weight") or named.get("dweight"), named.get("dy") or named.get("y")
    if weight is None or y is None:
        return 0
    return 2 * prod(y.shape) * (prod(weight.shape[1:]) if kernel.startswith("conv") else weight.shape[0])
