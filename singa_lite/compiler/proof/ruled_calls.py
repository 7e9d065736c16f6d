"""Calls that the user's rules put into a program, over the values of the record that they are said to replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.sides import Application, Side
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.calls import Call, Calls
from singa_lite.compiler.proof.check_calls import called
from singa_lite.compiler.proof.values import Memory, Numbers, form_of


def add_applied(calls: Calls, applied: Sequence[Application]) -> None:
    """Note the calls of each replacement, whose results are those of the pattern. PlanError where the calls that a
    rule is said to replace are not its pattern.
    """
    for one in applied:
        _add(calls, one)


class _Run:
    """A side of a rule over values of its own. held: {its value: that of the record}."""

    def __init__(self, side: Side) -> None:
        self.calls = Calls(Numbers())
        self.memory = Memory(self.calls.numbers, {})
        self.inputs = [self.memory.read(operand) for operand in side.inputs]
        for number, instruction in enumerate(side.instructions):
            self.calls.record(self.memory, replace(instruction, number=number))
        self.outputs = [self.memory.read(operand) for operand in side.outputs]
        self.held: dict[int, int] = {}


def _add(calls: Calls, applied: Application) -> None:
    pattern, replacement = (_Run(side) for side in applied.sides)
    for index, number in enumerate(applied.matched):
        _match(calls, applied, pattern, index, number)
    pairs = zip((*replacement.inputs, *replacement.outputs), (*pattern.inputs, *pattern.outputs), strict=True)
    for mine, theirs in pairs:
        if theirs not in pattern.held:
            raise PlanError(
                f"rewriting, rule {applied.name!r}: wanted a pattern that takes all its inputs, received one without"
            )
        replacement.held[mine] = pattern.held[theirs]
    for index, number in enumerate(applied.made):
        call = replacement.calls.by_number.get(index)
        if call is None:  # a copy, which is seen through
            continue
        reads = tuple(None if value is None else _known(applied, replacement, value) for value in call.reads)
        writes = tuple(
            None if value is None else replacement.held.setdefault(value, calls.numbers.new()) for value in call.writes
        )
        made = Call(replace(call.instruction, number=number), reads, writes)
        calls.add(made)
        calls.by_number[number] = made


def _match(calls: Calls, applied: Application, pattern: _Run, index: int, number: int) -> None:
    """Note which values of the record those of a call of the pattern are."""
    mine, theirs = pattern.calls.by_number.get(index), calls.by_number.get(number)
    if mine is None:
        return
    if theirs is None or not _same_call(mine.instruction, theirs.instruction):
        wanted = mine.instruction.kernel if theirs is None else f"{mine.instruction.kernel} as in its pattern"
        raise PlanError(
            f"rewriting, rule {applied.name!r}: wanted {wanted}, received "
            f"{f'number {number}, which the record has not' if theirs is None else called(theirs.instruction)}"
        )
    for one, other in zip((*mine.reads, *mine.writes), (*theirs.reads, *theirs.writes), strict=True):
        if one is not None and other is not None and pattern.held.setdefault(one, other) != other:
            raise PlanError(
                f"rewriting, rule {applied.name!r}, {called(theirs.instruction)}: wanted the values of its pattern, "
                "received others"
            )


def _same_call(one: Instruction, other: Instruction) -> bool:
    forms = [[o and form_of(o) for o in i.operands] for i in (one, other)]
    return one.kernel == other.kernel and one.settings == other.settings and forms[0] == forms[1]


def _known(applied: Application, replacement: _Run, value: int) -> int:
    if value not in replacement.held:
        raise PlanError(
            f"rewriting, rule {applied.name!r}: wanted a replacement that takes its inputs as they are, received one "
            "that takes a part of one"
        )
    return replacement.held[value]
