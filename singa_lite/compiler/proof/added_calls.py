"""Calls that are added to a record, over its values: by the laws, and by the user's rules where they were applied.

They would make the same values as some of the record's own calls. That laws and rules are true is proved by runs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from singa_lite.compiler.ir.laws import LAWS, Law, LawCall, settings_of
from singa_lite.compiler.ir.matching import Application, CallPattern, Side, matches
from singa_lite.compiler.ir.operation import Instruction, Operand, called
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.calls import Call, Calls, same_elements
from singa_lite.compiler.proof.values import Memory, Numbers, form_of
from singa_lite.kernels.interface import SIGNATURES


class Bound(NamedTuple):
    """The values that a law's words stand for, None for none; operands that say how they lie; variables."""

    values: dict[str, int | None]
    lie: dict[str, Operand | None]
    variables: dict[str, str]


def obey(calls: Calls, wanted: Collection[str]) -> None:
    """Add what the laws say, of calls of the wanted kernels and of those that other laws need for them."""
    for one in _relevant_laws(wanted):
        pattern = [_pattern(part) for part in one.left]
        starts = [call for kernel in sorted(pattern[0].kernels) for call in calls.by_kernel.get(kernel, ())]
        for found in [match for first in starts for match in matches(pattern, calls, first)]:
            bound = _bound(one, found)
            if bound is not None and one.holds([call.instruction for call in found]):
                _add_right_side(calls, one, found, bound)


def _relevant_laws(wanted: Collection[str]) -> list[Law]:
    """The laws that say something of these kernels, in their order."""
    kernels, needed = set(wanted), list[Law]()
    for one in reversed(LAWS):
        if any(kernels.intersection(part.kernels()) for part in one.right):
            needed.append(one)
            kernels.update(*(part.kernels() for part in one.left))
    return needed[::-1]


def _pattern(part: LawCall) -> CallPattern:
    """What the calls are searched for: values, those read and then those written."""
    reads, writes = list[str | None](), list[str | None]()
    for word, role in zip(part.words, SIGNATURES[min(part.kernels())].roles, strict=True):
        reads.append(None if role == "Write" or word.before == "-" else word.before)
        writes.append(None if role == "Read" or word.before == "-" else word.result)
    return CallPattern(part.kernels(), part.variable, (*reads, *writes), open=True)


def _bound(one: Law, found: Sequence[Call]) -> Bound | None:
    """What the words stand for with these calls; None where one stands for two things: the search is not believed."""
    values: dict[str, int | None] = {"-": None}
    lie: dict[str, Operand | None] = {}
    variables: dict[str, str] = {}
    for part, call in zip(one.left, found, strict=True):
        meant = part.kernels().get(call.instruction.kernel)
        if meant is None or (part.variable and variables.setdefault(part.variable, meant) != meant):
            return None
        for word, operand, read, written in zip(
            part.words, call.instruction.operands, call.reads, call.writes, strict=True
        ):
            value = read if word.after or written is None else written
            if values.setdefault(word.before, value) != value:
                return None
            if word.after and values.setdefault(word.after, written) != written:
                return None
            lie.setdefault(word.result, operand)
            known = lie.setdefault(word.before, operand)
            if known is not None and operand is not None and not _fit(known, operand, part.variable):
                return None
    return Bound(values, lie, variables)


def _fit(known: Operand, operand: Operand, variable: str) -> bool:
    """Whether they lie so that a law may speak of one value: an activation does not care for the shape."""
    return same_elements(form_of(known), form_of(operand)) if variable else form_of(known) == form_of(operand)


def _add_right_side(calls: Calls, one: Law, found: Sequence[Call], bound: Bound) -> None:
    """Add the calls of a law's right side."""
    model = found[0].instruction
    for part in one.right:
        kernel = part.kernel_for(bound.variables)
        operands, reads, writes = [], [], []
        for word, role in zip(part.words, SIGNATURES[kernel].roles, strict=True):
            operands.append(bound.lie[word.like or word.before])
            bound.lie.setdefault(word.before, operands[-1])
            reads.append(None if role == "Write" else bound.values[word.before])
            writes.append(None if role == "Read" else bound.values.get(word.result))
        scores = bound.lie.get("z")  # how many classes there are is said by the scores
        classes = {} if scores is None or len(scores.shape) != 2 else {"classes": scores.shape[1]}
        settings = settings_of(kernel, [call.instruction for call in found], bound.variables, classes)
        instruction = replace(model, kernel=kernel, operands=tuple(operands), settings=settings)
        known = calls.find(instruction, tuple(reads))
        for index, (word, role) in enumerate(zip(part.words, SIGNATURES[kernel].roles, strict=True)):
            if role != "Read" and operands[index] is not None and writes[index] is None:
                made = calls.numbers.new() if known is None else known.writes[index]
                bound.values[word.result] = writes[index] = made
        if known is None:
            calls.add(Call(instruction, tuple(reads), tuple(writes)))


def add_applied(calls: Calls, applied: Sequence[Application]) -> None:
    """Note the calls of each replacement, whose results are those of the pattern. PlanError where the calls that a
    rule is said to replace are not its pattern.
    """
    for one in applied:
        _add_replacement(calls, one)


class _Run:
    """A side of a rule over values of its own. of_record: {its value: that of the record}."""

    def __init__(self, side: Side) -> None:
        self.calls = Calls(Numbers())
        self.memory = Memory(self.calls.numbers, {})
        inputs = [self.memory.read(operand) for operand in side.inputs]
        for number, instruction in enumerate(side.instructions):
            self.calls.record(self.memory, replace(instruction, number=number))
        self.ends = [*inputs, *(self.memory.read(operand) for operand in side.outputs)]
        self.of_record: dict[int, int] = {}


def _add_replacement(calls: Calls, applied: Application) -> None:
    pattern, replacement = (_Run(side) for side in applied.sides)
    where = f"rewriting, rule {applied.name!r}"
    for index, number in enumerate(applied.matched):
        _match(calls, where, pattern, index, number)
    if not pattern.of_record.keys() >= {*pattern.ends}:
        raise PlanError(f"{where}: wanted a pattern that takes all its inputs, received one without")
    known = replacement.of_record
    known |= {mine: pattern.of_record[theirs] for mine, theirs in zip(replacement.ends, pattern.ends, strict=True)}
    for index, number in enumerate(applied.made):
        call = replacement.calls.by_number.get(index)
        if call is None:  # a copy, which is seen through
            continue
        if any(value is not None and value not in known for value in call.reads):
            raise PlanError(
                f"{where}: wanted a replacement that takes its inputs as they are, received one that takes a part"
            )
        reads = tuple(None if value is None else known[value] for value in call.reads)
        writes = tuple(None if value is None else known.setdefault(value, calls.numbers.new()) for value in call.writes)
        calls.by_number[number] = Call(replace(call.instruction, number=number), reads, writes)
        calls.add(calls.by_number[number])


def _match(calls: Calls, where: str, pattern: _Run, index: int, number: int) -> None:
    """Note which values of the record those of a call of the pattern are."""
    mine, theirs = pattern.calls.by_number.get(index), calls.by_number.get(number)
    if mine is None:
        return
    kernel = mine.instruction.kernel
    if theirs is None:
        raise PlanError(f"{where}: wanted {kernel}, received number {number}, which the record has not")
    if not _same_call(mine.instruction, theirs.instruction):
        raise PlanError(f"{where}: wanted {kernel} as in its pattern, received {called(theirs.instruction)}")
    for one, other in zip((*mine.reads, *mine.writes), (*theirs.reads, *theirs.writes), strict=True):
        if one is not None and other is not None and pattern.of_record.setdefault(one, other) != other:
            raise PlanError(f"{where}, {called(theirs.instruction)}: wanted the values of its pattern, received others")


def _same_call(one: Instruction, other: Instruction) -> bool:
    forms = [[o and form_of(o) for o in i.operands] for i in (one, other)]
    return one.kernel == other.kernel and one.settings == other.settings and forms[0] == forms[1]
