"""What passes ask about sums over processes: which call begins one, which waits for it, and what is under way."""

from __future__ import annotations

import zlib
from dataclasses import replace

from singa_lite.kernels.collective import collective_of
from singa_lite.kernels.interface import SIGNATURES, Facts, Signature
from singa_lite.operation import Instruction
from singa_lite.passes.program import Program

BEGIN, WAIT, POLL = "begin", "wait", "poll"


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


def limit_of(instruction: Instruction) -> int:
    """The most bytes that may be left to sums at a time."""
    return collective_of(instruction.settings).in_flight_bytes


def as_values(program: Program) -> Program:
    """The program as far as values go: a sum is one call that changes them, where it is waited for.

    What comes of the other ranks, and what keeps sums in their order, is left out; that nobody touches the values
    between beginning and end is proved by itself (`in_flight.py`).
    """
    if not has_any(program):
        return program
    made = []
    for instruction in program.instructions:
        kind = kind_of(instruction)
        if kind == WAIT:
            may_be_cut = SIGNATURES[instruction.kernel].facts.by_elements
            kernel = _BY_ELEMENTS if may_be_cut else _WHOLE
            made.append(replace(instruction, kernel=kernel.name, operands=instruction.operands[:1]))
        elif not kind:
            made.append(instruction)
    return program.with_instructions(made)


def _valued(name: str, by_elements: bool) -> Signature:
    facts = Facts(by_elements=by_elements, once=True, activations=())
    name = SIGNATURES.own_name(name)
    signature = Signature(name, ("values",), ("Update",), frozenset(), ("call",), {}, facts, "own")
    SIGNATURES.enter_own(signature)
    return signature


_BY_ELEMENTS, _WHOLE = _valued("parallel.summed", True), _valued("parallel.summed_in_parts", False)


def digest(program: Program) -> int:
    """Equal where two processes begin equal sums in one order. Any other two never meet."""
    begun = [(i.kernel, i.operands[0]) for i in program.instructions if kind_of(i) == BEGIN]
    sums = ",".join(f"{kernel}{o.shape}{o.dtype}" for kernel, o in begun if o is not None)
    return zlib.crc32(sums.encode())
