"""Fusion: an operation and the activation behind it become one, which stores the result once."""

from __future__ import annotations

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.operation import Instruction, Operand
from singa_lite.passes.program import Program
from singa_lite.passes.uses import Uses
from singa_lite.strides import laid_out


def fused(program: Program) -> Program:
    """Give each operation that an activation follows the activation, if the kernel set does the two in one go.

    The result of the first must be a whole intermediate block that nothing but the activation reads, and the
    activation's a block that is new there.
    """
    uses = Uses(program.instructions).steps
    result: list[Instruction | None] = list(program.instructions)
    for step, instruction in enumerate(program.instructions):
        follower = _activation(program, uses, instruction)
        if follower:
            result[step] = _joined(program, instruction, program.instructions[follower])
            result[follower] = None
    kept = [instruction for instruction in result if instruction is not None]
    return program.with_instructions(kept) if len(kept) < len(result) else program


def _activation(program: Program, uses: dict[int, list[int]], instruction: Instruction) -> int:
    """The step of the activation that can be done with the instruction; 0 if there is none."""
    signature = SIGNATURES[instruction.kernel]
    if not signature.facts.activated:
        return 0
    y = instruction.operands[signature.tensors.index("y")]
    if y is None or y.block not in program.sizes or len(uses[y.block]) != 2:
        return 0
    follower = uses[y.block][1]
    activation = program.instructions[follower]
    if (instruction.kernel, activation.kernel) not in program.target.fusions or activation.settings:
        return 0
    target = activation.operands[1]
    fits = _lie_alike(activation.operands[0], y) and target is not None and _is_new(program, target, y, follower, uses)
    return follower if fits else 0


def _is_new(program: Program, target: Operand, y: Operand, step: int, uses: dict[int, list[int]]) -> bool:
    """Whether the activation's result may be written where y was: a whole block, first used there, that lies as y."""
    whole = target.offset == 0 and program.sizes.get(target.block, target.nbytes) == target.nbytes
    alike = _lie_alike(target._replace(block=y.block, offset=y.offset), y)
    return whole and uses[target.block][0] == step and alike


def _joined(program: Program, instruction: Instruction, activation: Instruction) -> Instruction:
    y, target = instruction.by_name["y"], activation.operands[1]
    if y is None or target is None:
        raise ValueError("an operation and its activation have a result")
    written = y._replace(block=target.block, offset=target.offset)
    operands = tuple(written if operand == y else operand for operand in instruction.operands)
    settings = {**instruction.settings, "activation": activation.kernel}
    return program.target.call(instruction, SIGNATURES[instruction.kernel].facts.activated, operands, settings)


def _lie_alike(one: Operand | None, other: Operand) -> bool:
    """Whether they are the same elements in the same order: equal, or of two shapes and both without gaps in C order.

    So a product of rows goes with an activation of (n, time, features).
    """
    if one is None or one == other:
        return one is not None
    same = (one.block, one.offset, one.dtype, one.nbytes) == (other.block, other.offset, other.dtype, other.nbytes)
    return same and _is_plain(one) and _is_plain(other)


def _is_plain(operand: Operand) -> bool:
    """Whether it lies in C order without gaps."""
    wanted = laid_out(operand.shape, range(len(operand.shape)), operand.dtype.itemsize)
    return all(e == 1 or a == b for e, a, b in zip(operand.shape, operand.strides, wanted, strict=True))
