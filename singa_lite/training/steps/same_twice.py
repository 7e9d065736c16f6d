"""Whether two records of one function are the same: what differs between its calls would be frozen by a replay."""

from __future__ import annotations

from typing import NoReturn

from singa_lite.common.errors import GraphError
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.device import Device
from singa_lite.graph.graph import Graph
from singa_lite.tensor import Block


def check_same(one: Graph, other: Graph, device: Device, where: str, instead: str) -> None:
    """GraphError unless both do the same operations over the same blocks and over constants of the same values.

    where: what was recorded; instead: what to do in the place of what differs.
    """
    found = _difference(one, other, device)
    if found:
        refuse(found, where, instead)


def refuse(found: str, where: str, instead: str) -> NoReturn:
    """GraphError that says what was found to differ."""
    raise GraphError(
        f"{where}: wanted the same operations each time that it is called, received {found}; a record would keep "
        f"those of one call, as of NumPy's random numbers: {instead}"
    )


def _difference(one: Graph, other: Graph, device: Device) -> str:
    """In words, "" where there is none."""
    first, second = one.instructions, other.instructions
    if len(first) != len(second):
        return f"{len(first)} operations, then {len(second)}"
    names: dict[int, int] = {}
    for mine, theirs in zip(first, second, strict=True):
        if _form(mine) != _form(theirs):
            return f"{_settings_text(mine)}, then {_settings_text(theirs)}"
        for operand, twin in zip(mine.operands, theirs.operands, strict=True):
            if operand is None or twin is None:
                continue
            known = operand.block in names
            if names.setdefault(operand.block, twin.block) != twin.block:
                return f"{mine.kernel!r} of layer {mine.layer!r} over other tensors"
            held, now_held = one.blocks[operand.block].held, other.blocks[twin.block].held
            if not known and _is_of_a_call(now_held):
                return (
                    f"a tensor {operand.shape} for {mine.kernel!r} of layer {mine.layer!r} that was kept from the call "
                    "before"
                )
            if not known and not _same_operand(held, now_held, device):
                return f"other values of a constant {operand.shape} of {mine.kernel!r} of layer {mine.layer!r}"
    return ""


def _form(instruction: Instruction) -> tuple[object, ...]:
    """All of a call but which blocks it is over."""
    operands = tuple(None if each is None else _view(each) for each in instruction.operands)
    return instruction.kernel, instruction.settings, instruction.phase, instruction.layer, operands


def _view(operand: Operand) -> tuple[object, ...]:
    return operand.shape, operand.dtype, operand.strides, operand.offset


def _settings_text(instruction: Instruction) -> str:
    settings = ", ".join(f"{name}={value!r:.160}" for name, value in dict(instruction.settings).items())
    return f"{instruction.kernel!r} of layer {instruction.layer!r}{settings and f' with {settings}'}"


def _is_of_a_call(held: Block | None) -> bool:
    """Whether it is a result of the other record's operations, which has no value."""
    return held is not None and held.memory is None


def _same_operand(one: Block | None, other: Block | None, device: Device) -> bool:
    """Whether both are made in the step, or are the same bytes from outside."""
    if one is None or other is None or one is other:
        return one is other
    return one.nbytes == other.nbytes and _bytes(one, device) == _bytes(other, device)


def _bytes(block: Block, device: Device) -> bytes:
    return device.runtime.read(device.view(block, (block.nbytes,), "uint8", (1,), 0)).tobytes()
