"""Calls that the laws add to a record: they would make the same values as some of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from singa_lite.compiler.ir.laws import LAWS, Law, LawCall, settings_of
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.proof.calls import Call, Calls, same_elements
from singa_lite.compiler.proof.values import form_of
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import Settings


class Match(NamedTuple):
    """The values that a law's words stand for, None for none; operands that say how they lie; kernels."""

    values: dict[str, int | None]
    lie: dict[str, Operand | None]
    kernels: dict[str, str]


def obey(calls: Calls, wanted: Collection[str]) -> None:
    """Add what the laws say, of calls of the wanted kernels and of those that other laws need for them."""
    for one in _relevant_laws(wanted):
        for found, bound in list(_places(calls, one)):
            if one.holds([call.instruction for call in found]):
                _add(calls, one, found, bound)


def _relevant_laws(wanted: Collection[str]) -> list[Law]:
    """The laws that say something of these kernels, in their order."""
    kernels, needed = set(wanted), list[Law]()
    for one in reversed(LAWS):
        if any(kernels.intersection(part.kernels()) for part in one.right):
            needed.append(one)
            kernels.update(*(part.kernels() for part in one.left))
    return needed[::-1]


def _places(calls: Calls, one: Law) -> Iterator[tuple[list[Call], Match]]:
    """Where a record has all calls of a law's left side."""
    first, *rest = one.left
    for kernel in sorted(first.kernels()):
        for call in list(calls.by_kernel.get(kernel, ())):
            bound = _joined(first, call, Match({"-": None}, {}, {}))
            if bound is not None:
                yield from _grown(calls, rest, [call], bound)


def _grown(
    calls: Calls, rest: Sequence[LawCall], found: list[Call], bound: Match
) -> Iterator[tuple[list[Call], Match]]:
    if not rest:
        yield found, bound
        return
    part, *others = rest
    for call in _candidate_calls(calls, part, bound):
        joined = _joined(part, call, bound)
        if joined is not None:
            yield from _grown(calls, others, [*found, call], joined)


def _candidate_calls(calls: Calls, part: LawCall, bound: Match) -> list[Call]:
    """Calls that have a value which the part is known to have: of those, the fewest."""
    kernels, known = part.kernels(), []
    for word, role in zip(part.words, SIGNATURES[min(kernels)].roles, strict=True):
        before, _, after = word.partition(">")
        if role != "Write" and (value := bound.values.get(before)) is not None:
            known.append(calls.readers[value])
        if role != "Read" and (value := bound.values.get(after or before)) is not None:
            known.append(calls.makers[value])
    return [call for call in min(known, key=len, default=[]) if call.instruction.kernel in kernels]


def _joined(part: LawCall, call: Call, bound: Match) -> Match | None:
    """What the words stand for with this call for the part; None where it is another one."""
    kernels, meant = dict(bound.kernels), part.kernels().get(call.instruction.kernel)
    if meant is None or (part.variable and kernels.setdefault(part.variable, meant) != meant):
        return None
    values, lie = dict(bound.values), dict(bound.lie)
    for word, operand, read, written in zip(
        part.words, call.instruction.operands, call.reads, call.writes, strict=True
    ):
        before, _, after = word.partition(">")
        value = read if after or written is None else written
        if values.setdefault(before, value) != value or (after and values.setdefault(after, written) != written):
            return None
        lie.setdefault(after or before, operand)
        known = lie.setdefault(before, operand)
        if known is not None and operand is not None and not _fit(known, operand, part.variable):
            return None
    return Match(values, lie, kernels)


def _fit(known: Operand, operand: Operand, variable: str) -> bool:
    """Whether they lie so that a law may speak of one value: an activation does not care for the shape."""
    return same_elements(form_of(known), form_of(operand)) if variable else form_of(known) == form_of(operand)


def _add(calls: Calls, one: Law, found: Sequence[Call], bound: Match) -> None:
    """Add the calls of a law's right side."""
    model = found[0].instruction
    for part in one.right:
        kernel = bound.kernels[part.variable] + part.kernel[2:] if part.variable else part.kernel
        operands, reads, writes = [], [], []
        for word, role in zip(part.words, SIGNATURES[kernel].roles, strict=True):
            name, _, like = word.partition("~")
            before, _, after = name.partition(">")
            operands.append(bound.lie[like or before])
            bound.lie.setdefault(before, operands[-1])
            reads.append(None if role == "Write" else bound.values[before])
            writes.append(None if role == "Read" else bound.values.get(after or before))
        settings = _settings(kernel, [call.instruction for call in found], bound)
        instruction = replace(model, kernel=kernel, operands=tuple(operands), settings=settings)
        known = calls.find(instruction, tuple(reads))
        for index, (word, role) in enumerate(zip(part.words, SIGNATURES[kernel].roles, strict=True)):
            before, _, after = word.partition("~")[0].partition(">")
            if role != "Read" and operands[index] is not None and writes[index] is None:
                made = calls.numbers.new() if known is None else known.writes[index]
                bound.values[after or before] = writes[index] = made
        if known is None:
            calls.add(Call(instruction, tuple(reads), tuple(writes)))


def _settings(kernel: str, left: Sequence[Instruction], bound: Match) -> Settings:
    """The settings of a call to the right of a law; how many classes there are is said by the scores."""
    scores = bound.lie.get("z")
    classes = {} if scores is None or len(scores.shape) != 2 else {"classes": scores.shape[1]}
    return settings_of(kernel, left, bound.kernels, classes)
