"""Joined calls taken apart again: what proofs and estimates see in their place."""

from __future__ import annotations

from dataclasses import replace

from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.kernels.interface import SIGNATURES, joined_of


def split_joined(program: Program) -> Program:
    """The program with single calls, one after the other, in the place of each joined one.

    Each call has the number that it had before it was joined, and the scratch of all. PlanError for a call that is not
    several of one kernel.
    """
    if not any(instruction.joins for instruction in program.instructions):
        return program
    return program.with_instructions([call for i in program.instructions for call in single_calls(i)])


def single_calls(instruction: Instruction) -> list[Instruction]:
    """The calls of a joined one; any other by itself."""
    if not instruction.joins:
        return [instruction]
    kernel, count = joined_of(instruction.kernel)
    if count != len(instruction.joins):
        raise PlanError(
            f"instruction {instruction.number} ({instruction.kernel}, layer {instruction.layer!r}): wanted "
            f"{len(instruction.joins)} calls of one kernel, received {count}"
        )
    width = len(SIGNATURES[kernel].tensors)
    return [
        replace(instruction, number=number, kernel=kernel, operands=instruction.operands[at : at + width], joins=())
        for at, number in zip(range(0, count * width, width), instruction.joins, strict=True)
    ]
