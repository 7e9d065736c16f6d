"""Between the calls behind a sum's beginning MPI is asked to go on: it does nothing by itself while kernels run."""

from __future__ import annotations

from dataclasses import replace

from singa_lite.compiler.ir.collectives import BEGIN, WAIT, has_any, kind_of
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program
from singa_lite.kernels.collective import collective_of
from singa_lite.kernels.interface import SIGNATURES, Facts, Signature

#: It has no tensors, so that it changes nothing wherever it stands.
_POLL = Signature(
    SIGNATURES.own_name("parallel.poll"), (), (), frozenset(), ("call",), {}, Facts(collective="poll"), "own"
)
SIGNATURES.enter_own(_POLL)


def polled(program: Program) -> Program:
    """A poll behind each call that runs while a sum is under way."""
    if not has_any(program):
        return program
    number = program.next_number
    made: list[Instruction] = []
    under_way = 0
    for instruction in program.instructions:
        made.append(instruction)
        kind = kind_of(instruction)
        under_way += {BEGIN: 1, WAIT: -1}.get(kind, 0)
        if kind == BEGIN:
            polling = collective_of(instruction.settings).polling()
            if polling is None:  # of sums on a GPU, by threads of their own
                return program
            settings = {"call": polling}
        if under_way and not kind:
            made.append(Instruction(number, _POLL.name, (), settings, instruction.phase, instruction.layer, 0))
            number += 1
    return replace(program, instructions=tuple(made))
