"""Questions of passes about sums over processes: which call begins one, which waits for it, and what is under way."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from math import prod

from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program, Rewriter
from singa_lite.kernels.collective import collective_of, parts_of
from singa_lite.kernels.interface import SIGNATURES, Facts, Signature

BEGIN, WAIT, POLL = "begin", "wait", "poll"
#: Numbers between those of two sums' parts, more than there are ranks.
_APART = 1 << 20


def kind_of(instruction: Instruction) -> str:
    """ "begin", "wait" or "poll"; "" of all that one process does by itself."""
    return SIGNATURES[instruction.kernel].facts.collective


def has_any(program: Program) -> bool:
    """Whether other processes take part."""
    return any(kind_of(instruction) for instruction in program.instructions)


def nbytes_of(instruction: Instruction) -> int:
    """Bytes that are left to a sum from its beginning to its end: what it sums, and what comes from the others."""
    return sum(operand.nbytes for operand in instruction.operands[:2] if operand is not None)


def most_in_flight(program: Program) -> int:
    """The most bytes that are left to sums at a time."""
    level = most = 0
    for instruction in program.instructions:
        kind = kind_of(instruction)
        if kind == BEGIN:
            level += nbytes_of(instruction)
            most = max(most, level)
        elif kind == WAIT:
            level -= nbytes_of(instruction)
    return most


def values_of(instruction: Instruction) -> Operand:
    """What a sum is of."""
    values = instruction.operands[0]
    if values is None:
        raise ValueError("a sum over the ranks has values")
    return values


def landing(make: Rewriter, call: Instruction, values: Operand) -> Operand:
    """A new place where the parts of values come in from the other ranks."""
    elements = collective_of(call.settings).landing_elements(prod(values.shape))
    return make.new_operand((elements,), values.dtype)


def parts_in(instruction: Instruction) -> list[slice]:
    """By rank, which elements of a sum's values are its part, as they lie in memory."""
    call = collective_of(instruction.settings)
    return parts_of(prod(values_of(instruction).shape), call.ranks, call.unit)


def in_line(operand: Operand, cut: slice) -> Operand:
    """Elements of an operand without gaps, in the order of memory."""
    item = operand.dtype.itemsize
    return Operand(operand.block, (cut.stop - cut.start,), operand.dtype, (item,), operand.offset + cut.start * item)


def as_values(program: Program) -> Program:
    """The program as far as values go: a sum is one call that changes them, where it is waited for.

    What comes of the other ranks, and what keeps sums in their order, is left out; that nobody touches the values
    between beginning and end is proved by itself (`proof/races.py`). Where each rank has its part, there is a call for
    each: the other ranks' parts are given away, and mean nothing from then on.
    """
    if not has_any(program):
        return program
    made: list[Instruction] = []
    for instruction in program.instructions:
        kind = kind_of(instruction)
        if kind == WAIT and collective_of(instruction.settings).of_own_part:
            made += _by_parts(instruction)
        elif kind == WAIT:
            may_be_cut = SIGNATURES[instruction.kernel].facts.by_elements
            kernel = _BY_ELEMENTS if may_be_cut else _WHOLE
            made.append(replace(instruction, kernel=kernel.name, operands=instruction.operands[:1]))
        elif not kind:
            made.append(instruction)
    return program.with_instructions(made)


def _by_parts(wait: Instruction) -> Iterator[Instruction]:
    """The calls of the parts, each with a number of its own."""
    rank, values = collective_of(wait.settings).rank, values_of(wait)
    for other, part in enumerate(parts_in(wait)):
        if part.stop > part.start:
            operands = (in_line(values, part),)
            if other == rank:
                yield replace(wait, kernel=_BY_ELEMENTS.name, operands=operands)
                continue
            number = -1 - wait.number * _APART - other
            yield replace(wait, kernel=_GIVEN_AWAY.name, operands=operands, number=number)


def _valued(name: str, by_elements: bool) -> Signature:
    facts = Facts(by_elements=by_elements, once=True, activations=())
    name = SIGNATURES.own_name(name)
    signature = Signature(name, ("values",), ("Update",), frozenset(), ("call",), {}, facts, "own")
    SIGNATURES.enter_own(signature)
    return signature


_BY_ELEMENTS, _WHOLE = _valued("parallel.summed", True), _valued("parallel.summed_in_parts", False)
_GIVEN_AWAY = _valued("parallel.given_away", True)


def digest(program: Program) -> int:
    """Equal where two processes begin equal sums in one order. Any other two never meet."""
    begun = [(i.kernel, i.operands[0]) for i in program.instructions if kind_of(i) == BEGIN]
    sums = ",".join(f"{kernel}{o.shape}{o.dtype}" for kernel, o in begun if o is not None)
    return zlib.crc32(sums.encode())
