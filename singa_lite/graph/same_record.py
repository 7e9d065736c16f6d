"""Whether two records do the same operations, whatever their layers and tensors are called."""

from __future__ import annotations

from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.proof.calls import exact
from singa_lite.graph.record import Record


def same_up_to_names(one: Record, other: Record) -> bool:
    """Whether there is one renaming of blocks by which each operation of the one is that of the other."""
    if one.count != other.count:
        return False
    there: dict[int, int] = {}
    back: dict[int, int] = {}
    for mine, theirs in zip(one.instructions, other.instructions, strict=True):
        if _form(mine) != _form(theirs):
            return False
        for operand, twin in zip(mine.operands, theirs.operands, strict=True):
            if operand is None or twin is None:
                continue
            if there.setdefault(operand.block, twin.block) != twin.block:
                return False
            if back.setdefault(twin.block, operand.block) != operand.block:
                return False
    return all(
        one.role(block) is other.role(twin) and one.blocks[block].nbytes == other.blocks[twin].nbytes
        for block, twin in there.items()
    )


def _form(instruction: Instruction) -> tuple[object, ...]:
    """All of an operation but names and which blocks it is over."""
    views = tuple(o and (o.shape, o.dtype, o.strides, o.offset) for o in instruction.operands)
    settings = {name: exact(value) for name, value in instruction.settings.items()}
    return instruction.kernel, settings, instruction.phase, views
