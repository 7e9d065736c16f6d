"""Sketch: live bytes of a schedule, with outputs written in place, without making its program.

The search for repeats asks for them some thousand times. What it gets is what `in_place` and `live_bytes` would say.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.operation import Instruction, Operand
from singa_lite.passes.program import Program
from singa_lite.passes.repeats import Call, Repeater, Schedule

#: An output, and the inputs that it may be written over if they die there.
Pair = tuple[int, tuple[int, ...]]


class _Needs(NamedTuple):
    """Of an instruction: its intermediate blocks, what may be written in place, and its scratch, rounded."""

    blocks: tuple[int, ...]
    pairs: tuple[Pair, ...]
    scratch: int


class Sketch:
    """The instructions of one program, and what each needs."""

    def __init__(self, repeater: Repeater) -> None:
        program = repeater.program
        self.first_new = program.next_block
        self.sizes = {block: program.rounded(nbytes) for block, nbytes in program.sizes.items()}
        self.plain = {step: _needs(program, i) for step, i in enumerate(program.instructions)}
        self.repeats = {step: _needs(program, i) for step, i in repeater.repeats.items()}

    def live_bytes(self, schedule: Schedule) -> list[int]:
        """Bytes live at each call, sizes rounded up to the alignment."""
        calls = [
            (self.repeats[call.step] if call.is_repeat else self.plain[call.step], call) for call in schedule.calls
        ]
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for at, (needs, call) in enumerate(calls):
            moved = call.moved
            for block in [moved.get(block, block) for block in needs.blocks] if moved else needs.blocks:
                if block not in first:
                    first[block] = at
                last[block] = at
        self._merge(calls, first, last)
        changes = [0] * (len(calls) + 1)
        for block, at in first.items():
            like = block if block < self.first_new else schedule.copies[block - self.first_new]
            changes[at] += self.sizes[like]
            changes[last[block] + 1] -= self.sizes[like]
        return [level + needs.scratch for level, (needs, _) in zip(accumulate(changes), calls, strict=False)]

    def _merge(self, calls: list[tuple[_Needs, Call]], first: dict[int, int], last: dict[int, int]) -> None:
        """As `in_place` does: an output's block goes, and that of the input it is written over lives as long."""
        home: dict[int, int] = {}
        for at, (needs, call) in enumerate(calls):
            for output, inputs in needs.pairs:
                block = call.moved.get(output, output)
                if first.get(block) != at:
                    continue
                for given in inputs:
                    moved = call.moved.get(given, given)
                    over = home.get(moved, moved)
                    if last[over] == at:
                        home[block] = over
                        last[over] = last[block]
                        del first[block]
                        break


def _needs(program: Program, instruction: Instruction) -> _Needs:
    blocks = {o.block for o in instruction.operands if o is not None and o.block in program.sizes}
    scratch = program.rounded(instruction.scratch_bytes)
    return _Needs(tuple(sorted(blocks)), tuple(_pairs(program, instruction)), scratch)


def _pairs(program: Program, instruction: Instruction) -> Iterator[Pair]:
    named = instruction.by_name
    for name, sources in SIGNATURES[instruction.kernel].overwrites.items():
        output = named[name]
        fitting = tuple(
            o.block for s in sources if (o := named[s]) is not None and _fits(program, output, o, instruction)
        )
        if output is not None and fitting:
            yield output.block, fitting


def _fits(program: Program, output: Operand | None, given: Operand, instruction: Instruction) -> bool:
    """Whether both are whole intermediate blocks of one form, and the input is no other operand's block too."""
    if output is None or output.block == given.block or output[1:] != given[1:]:
        return False
    size = program.sizes.get(output.block)
    if size is None or size != program.sizes.get(given.block) or size != output.nbytes:
        return False
    return sum(o is not None and o.block == given.block for o in instruction.operands) == 1
