"""Fusion: an operation and the activation behind it become one, which stores the result once."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from singa_lite.kernels.interface import FUSED, SIGNATURES
from singa_lite.operation import Instruction, Operand
from singa_lite.passes.tiles import ScratchRule
from singa_lite.passes.uses import Uses

#: Kernels that a kernel set does in one go: (name, activation).
Fusions = Collection[tuple[str, str]]


def fused(
    instructions: Sequence[Instruction], sizes: dict[int, int], fusions: Fusions, scratch: ScratchRule
) -> list[Instruction]:
    """Give each operation that an activation follows the activation, if the kernel set does the two in one go.

    The result of the first must be a whole intermediate block that nothing but the activation reads, and the
    activation's a block that is new there. sizes: {intermediate block: bytes}.
    """
    uses = Uses(instructions).places
    result: list[Instruction | None] = list(instructions)
    for place, instruction in enumerate(instructions):
        kernel = FUSED.get(instruction.kernel)
        if kernel is None:
            continue
        y = instruction.operands[SIGNATURES[instruction.kernel].tensors.index("y")]
        if y is None or y.block not in sizes or len(uses[y.block]) != 2:
            continue
        follower = uses[y.block][1]
        activation = instructions[follower]
        if (instruction.kernel, activation.kernel) not in fusions or activation.settings:
            continue
        target = activation.operands[1]
        if activation.operands[0] != y or target is None or not _is_new(target, y, follower, uses, sizes):
            continue
        result[place] = _joined(instruction, kernel, activation.kernel, y, target, scratch)
        result[follower] = None
    return [instruction for instruction in result if instruction is not None]


def _is_new(target: Operand, y: Operand, place: int, uses: dict[int, list[int]], sizes: dict[int, int]) -> bool:
    """Whether the activation's result may be written where y was: a whole block, first used there, that lies as y."""
    whole = target.offset == 0 and sizes.get(target.block, target.nbytes) == target.nbytes
    return whole and uses[target.block][0] == place and target[1:] == y[1:]


def _joined(
    instruction: Instruction, kernel: str, activation: str, y: Operand, target: Operand, scratch: ScratchRule
) -> Instruction:
    operands = tuple(target if operand is y or operand == y else operand for operand in instruction.operands)
    settings = {**instruction.settings, "activation": activation}
    nbytes = scratch(kernel, operands, settings)
    return Instruction(instruction.number, kernel, operands, settings, instruction.phase, instruction.layer, nbytes)
