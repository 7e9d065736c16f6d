"""Joined calls taken apart again: what proofs and estimates see in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from singa_lite.compiler.ir.footprint import overlap, span_of
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.kernels.interface import SIGNATURES, joined_of

NO_OFFSETS: Mapping[int, int] = MappingProxyType({})


def split_joined(program: Program, offsets: Mapping[int, int] = NO_OFFSETS) -> Program:
    """The program with single calls, one after the other, in the place of each joined one.

    offsets: {block: offset in the arena}, other blocks have bytes of their own. Each call has the number that it had
    before it was joined, and the scratch of all. PlanError for a call that is not several of one kernel, or in which
    one writes what another uses: a kernel does them in any order, or at once.
    """
    if not any(instruction.joins for instruction in program.instructions):
        return program
    return program.with_instructions([call for i in program.instructions for call in _calls(i, offsets)])


def _calls(joined: Instruction, offsets: Mapping[int, int]) -> Iterator[Instruction]:
    if not joined.joins:
        yield joined
        return
    kernel, count = joined_of(joined.kernel)
    if count != len(joined.joins):
        raise PlanError(f"{_called(joined)}: wanted {len(joined.joins)} calls of one kernel, received {count}")
    width = len(SIGNATURES[kernel].tensors)
    calls = []
    for place, number in enumerate(joined.joins):
        operands = joined.operands[place * width : (place + 1) * width]
        calls.append(replace(joined, number=number, kernel=kernel, operands=operands, joins=()))
    _check_apart(joined, calls, offsets)
    yield from calls


def _check_apart(joined: Instruction, calls: list[Instruction], offsets: Mapping[int, int]) -> None:
    """PlanError where one of the calls writes bytes that another one uses."""
    used: dict[int, list[tuple[int, Operand]]] = {}
    for place, call in enumerate(calls):
        for operand in call.operands:
            if operand is not None:
                used.setdefault(span_of(operand, offsets)[0], []).append((place, operand))
    for place, call in enumerate(calls):
        for written in call.writes:
            for other, operand in used[span_of(written, offsets)[0]]:
                if other != place and overlap(written, operand, offsets):
                    raise PlanError(f"{_called(joined)}: wanted calls apart, received {written} and {operand} in two")


def _called(instruction: Instruction) -> str:
    return f"instruction {instruction.number} ({instruction.kernel}, layer {instruction.layer!r})"
