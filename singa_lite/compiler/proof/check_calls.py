"""The proof, before any read: each planned call is one of the rewritten program, once or again, with its operands."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from singa_lite.compiler.ir.collectives import POLL, kind_of
from singa_lite.compiler.ir.footprint import axis_order, boxes, coincide, moves_bytes, overlap
from singa_lite.compiler.ir.operation import Instruction, called, repeat_of
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.kernels.interface import SIGNATURES


def check_calls(rewritten: Program, planned: Program, offsets: Mapping[int, int]) -> Collection[int]:
    """Which were left out.

    PlanError unless each call is one of the rewritten program, once, or a repeat of one, or a copy to host memory or
    back.
    """
    originals = {i.number: i for i in rewritten.instructions}
    left, numbers = set(originals), set[int]()
    for instruction in planned.instructions:
        number = instruction.number if instruction.repeats is None else instruction.repeats
        if kind_of(instruction) == POLL and number not in originals.keys() | numbers:
            numbers.add(number)  # it has no operands
            continue
        if planned.host_sizes or instruction.transfer is not None:
            _check_sides(instruction, planned)
        if instruction.transfer is not None and instruction.number not in originals.keys() | numbers:
            numbers.add(instruction.number)
            continue
        original = originals.get(number)
        if original is None or instruction.number in numbers or instruction.transfer is not None:
            raise PlanError(f"{called(instruction)}: wanted one of the rewritten program, and only once")
        numbers.add(instruction.number)
        if instruction.repeats is None:
            left.discard(number)
        elif SIGNATURES[original.kernel].facts.once:
            raise PlanError(f"{called(instruction)}: wanted no repeat of a call that may be done once alone")
        elif instruction.number in originals:
            raise PlanError(f"{called(instruction)}: wanted a number of its own for a repeat")
        _check_call(original if instruction.repeats is None else repeat_of(original), instruction, offsets)
        if original is not instruction:
            _check_scratch(original, instruction)
            _check_within(instruction, planned.sizes)
    return left


def _check_sides(instruction: Instruction, planned: Program) -> None:
    """PlanError where anything but a copy to host memory or back has an operand there, or such a copy is no plain one.

    planned: the program, whose `sizes` have the blocks of host memory too.
    """
    on_host = [o.block in planned.host_sizes for o in instruction.operands if o is not None]
    if instruction.transfer is None:
        if any(on_host):
            raise PlanError(f"{called(instruction)}: wanted no operand in host memory, received {instruction}")
        return
    moves = instruction.kernel == "copy" and instruction.repeats is None and moves_bytes(instruction)
    if not moves or sorted(on_host) != [False, True] or any(o.block not in planned.sizes for o in instruction.writes):
        raise PlanError(f"{called(instruction)}: wanted a copy between arena and host memory, received {instruction}")
    _check_within(instruction, planned.sizes)


def _check_within(instruction: Instruction, sizes: Mapping[int, int]) -> None:
    """PlanError unless its operands stay within their blocks: where nobody reads an output, no read would show it."""
    for operand in instruction.operands:
        if operand is None or operand.block not in sizes:
            continue
        stop = max((box.end for box in boxes(operand)), default=0)
        if stop > sizes[operand.block]:
            raise PlanError(
                f"{called(instruction)}: wanted {operand} within its block of {sizes[operand.block]} bytes, "
                f"received bytes up to {stop}"
            )


def _check_scratch(original: Instruction, planned: Instruction) -> None:
    """PlanError where the very call, over the same strides, has less scratch than it had."""
    strides = [[o and o.strides for o in i.operands] for i in (original, planned)]
    is_less = planned.scratch_bytes < original.scratch_bytes
    if is_less and original.kernel == planned.kernel and strides[0] == strides[1]:
        raise PlanError(
            f"{called(planned)}: wanted {original.scratch_bytes} bytes of scratch, received {planned.scratch_bytes}"
        )


def _check_call(original: Instruction, planned: Instruction, offsets: Mapping[int, int]) -> None:
    """PlanError unless it is the same call, and its outputs share bytes with its other operands only as allowed."""
    if original is planned:
        return
    forms = [
        [o and (o.shape, o.dtype, axis_order(o.shape, o.strides)) for o in i.operands] for i in (original, planned)
    ]
    if (original.kernel, original.settings) != (planned.kernel, planned.settings) or forms[0] != forms[1]:
        raise PlanError(f"{called(planned)}: wanted the call {original}, received {planned}")
    signature = SIGNATURES[planned.kernel]
    for name, role, target, before in zip(
        signature.tensors, signature.roles, planned.operands, original.operands, strict=True
    ):
        if target is None or before is None or role == "Read":
            continue
        if target.strides != before.strides and len(boxes(target)) > 1:
            raise PlanError(f"{called(planned)}: wanted the elements of {name!r} apart, received {target}")
        for other, operand, source in zip(signature.tensors, planned.operands, original.operands, strict=True):
            if operand is None or source is None or other == name or source.block == before.block:
                continue
            allowed = other in signature.overwrites.get(name, ()) and coincide(target, operand, offsets)
            if not allowed and overlap(target, operand, offsets):
                raise PlanError(f"{called(planned)}: wanted {name!r} apart from {other!r}, received shared bytes")
