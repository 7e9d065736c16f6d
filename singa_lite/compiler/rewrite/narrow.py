"""Storage in 16 bits: activations and their derivatives are kept narrow, and every kernel still adds up in 32.

    recorded:   y = conv2d(x, weight, bias);  z = relu(y);  ...  dx = conv2d'(dz, weight);  dweight = conv2d''(x, dz)
    here:       the same calls, with x, y, z, dz, dx in blocks of half the bytes

What is narrow is decided block by block, by all of its uses: a whole block of the net's dtype that layers write going
forward or as derivatives, and that kernels take in the place of an activation (`ACTIVATIONS`). Parameters, their
gradients and the optimizer's state, statistics, whatever a loss or a metric reads or writes, what the user holds, and
the layers that are kept as they are, stay as they were. No cast is recorded: kernels convert what they read and write.
Micikevicius and others, "Mixed precision training" (arXiv 1710.03740); for bfloat16 Kalamkar and others (1905.12322).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from singa_lite.compiler.ir.operation import Instruction, Operand, Phase
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.target import Narrow
from singa_lite.kernels.interface import SIGNATURES

#: What the interface calls activations and their derivatives, of whatever kernel.
ACTIVATIONS = frozenset({"x", "y", "dx", "dy", "a", "b", "q", "k", "v", "dq", "dk", "dv"})


def narrowed(program: Program) -> Program:
    """Each block of activations or derivatives in the target's narrow dtype; the program itself if it has none."""
    narrow = program.target.narrow
    if narrow is None:
        return program
    blocks = _narrow_blocks(program, narrow)
    if not blocks:
        return program
    instructions = [_narrowed(program, instruction, blocks, narrow) for instruction in program.instructions]
    shares = narrow.wide.itemsize // narrow.dtype.itemsize
    sizes = {block: nbytes // shares if block in blocks else nbytes for block, nbytes in program.sizes.items()}
    return replace(program, instructions=tuple(instructions), sizes=sizes)


def _narrow_blocks(program: Program, narrow: Narrow) -> set[int]:
    """The blocks that every use allows to be narrow."""
    allowed: dict[int, bool] = defaultdict(lambda: True)
    for instruction in program.instructions:
        for index, operand in enumerate(instruction.operands):
            if operand is not None and operand.block in program.sizes:
                allowed[operand.block] &= _may_be_narrow(instruction, index, operand, narrow)
    return {block for block, may in allowed.items() if may}


def _may_be_narrow(instruction: Instruction, index: int, operand: Operand, narrow: Narrow) -> bool:
    """Whether this use leaves its block free to be narrow. Outside any layer stand losses and metrics."""
    signature = SIGNATURES[instruction.kernel]
    if not instruction.layer or instruction.layer in narrow.wide_layers or operand.dtype != narrow.wide:
        return False
    activations = ACTIVATIONS if signature.facts.activations is None else signature.facts.activations
    if signature.tensors[index] not in activations or instruction.phase is Phase.UPDATE:
        return False
    return instruction.phase is not Phase.GRADIENT or operand not in instruction.writes


def _narrowed(program: Program, instruction: Instruction, blocks: set[int], narrow: Narrow) -> Instruction:
    """The call over the narrow blocks, with the scratch that it needs there."""
    if not any(operand is not None and operand.block in blocks for operand in instruction.operands):
        return instruction
    shares = narrow.wide.itemsize // narrow.dtype.itemsize
    operands = tuple(
        Operand(
            operand.block,
            operand.shape,
            narrow.dtype,
            tuple(stride // shares for stride in operand.strides),
            operand.offset // shares,
        )
        if operand is not None and operand.block in blocks
        else operand
        for operand in instruction.operands
    )
    return program.target.call(instruction, instruction.kernel, operands, instruction.settings)
