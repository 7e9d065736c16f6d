"""Copies of values to host memory and back in a program, and when they begin and end.

    steps:    ... conv1 | bn1 ...                    ... | conv1' ...
    arena:    b________________]                 [b'____________
    host:               [h______________________________]
                     out     ended           begun     back

A value's block b is copied out after its last use before a long gap, and back into a new block b' before the first one
behind; all that uses the value from there on uses b'. Rhu and others, "vDNN" (arXiv 1602.08124).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import accumulate, pairwise
from math import fsum
from typing import NamedTuple

import numpy as np

from singa_lite.compiler.ir.operation import Instruction, Operand, Transfer, over_blocks
from singa_lite.compiler.ir.program import Program, split_joined
from singa_lite.compiler.ir.time_model import BYTES, CALL
from singa_lite.compiler.ir.uses import Uses


def copy_seconds(nbytes: int, link: float) -> float:
    """Seconds of copying so many bytes in one direction. link: see `Target`."""
    return CALL + nbytes / (BYTES * link)


def waiting(program: Program) -> float:
    """Seconds that a program is later for its copies."""
    link = program.target.link
    if link is None or not program.host_sizes:
        return 0.0
    now = computing = 0.0
    free = {True: 0.0, False: 0.0}
    done: dict[int, float] = {}
    for instruction in program.instructions:
        if instruction.transfer is None:
            took = program.target.cost(instruction)
            now, computing = now + took, computing + took
            continue
        target = instruction.writes[0]
        if instruction.transfer is Transfer.BEGIN:
            out = target.block in program.host_sizes
            free[out] = done[target.block] = max(now, free[out]) + copy_seconds(target.nbytes, link)
        if instruction.transfer is Transfer.END:
            now = max(now, done[target.block])
    return now - computing


def is_free(program: Program) -> bool:
    """Whether it is what runs without a limit: the same repeats, and no copies to host memory."""
    made, free = (sorted(i.repeats for i in of if i.repeats is not None) for of in (program.instructions, program.free))
    return made == free and not program.host_sizes


def estimated_slowdown(program: Program, free: Program | None = None) -> float:
    """The time by which a program takes longer than without a limit: repeats and waiting for copies; as a share.

    free: the program without a limit, against which it is taken; another form of it may have been chosen, whose calls
    without the repeats take longer. None: it is this one without its repeats. Costs are asked for only where the
    program differs from the free one.
    """
    if program.free and is_free(program):
        return 0.0
    program = split_joined(program)  # as costs are of single calls
    cost, wait = program.target.cost, waiting(program)
    computed = [instruction for instruction in program.instructions if instruction.transfer is None]
    before = program.free if free is None else free.instructions
    before = before or tuple(instruction for instruction in computed if instruction.repeats is None)
    if not wait and before == tuple(computed):
        return 0.0
    return (fsum(map(cost, computed)) + wait) / fsum(map(cost, before)) - 1.0


_BYTE = np.dtype(np.uint8)


class Offload(NamedTuple):
    """A block's way: copied out before step `out`, gone before `ended`, coming back before `begun`, and there before
    step `back`."""

    block: int
    out: int
    ended: int
    begun: int
    back: int

    @property
    def is_waited(self) -> bool:
        """Whether the step waits for both copies."""
        return self.ended == self.out and self.begun == self.back


class Timetable:
    """When copies of a program's values begin and end. gaps: {block: (steps of the uses before and behind)}.

    The gap is the longest without a use.
    """

    def __init__(self, program: Program, link: float) -> None:
        self.program = program
        self.clock = [0.0, *accumulate(map(program.target.cost, program.instructions))]
        uses = Uses(program.instructions).steps
        self.gaps = {
            block: max(pairwise(uses[block]), key=lambda gap: gap[1] - gap[0])
            for block in sorted(program.sizes)
            if len(uses[block]) > 1 and program.sizes[block]
        }
        self.seconds = {block: copy_seconds(program.sizes[block], link) for block in self.gaps}

    def waited(self, block: int) -> Offload:
        """The step waits for both copies."""
        before, behind = self.gaps[block]
        return Offload(block, before + 1, before + 1, behind, behind)

    def hidden(self, blocks: Iterable[int]) -> list[Offload]:
        """Copies beside computing, as late as that the step waits for none, if it can be."""
        chosen = list(blocks)
        ended, begun = self._ends(chosen), self._begins(chosen)
        return [self.waited(block)._replace(ended=ended[block], begun=begun[block]) for block in chosen]

    def _ends(self, blocks: Collection[int]) -> dict[int, int]:
        """{block: the step before which it is copied out}: one copy after the other."""
        ended, free = {}, 0.0
        for block in sorted(blocks, key=lambda block: self.gaps[block]):
            free = max(free, self.clock[self.gaps[block][0] + 1]) + self.seconds[block]
            ended[block] = bisect_left(self.clock, free)
        return ended

    def _begins(self, blocks: Collection[int]) -> dict[int, int]:
        """{block: the step before which its copy back begins}: in time for its reader, and for the copies behind."""
        begun, free = {}, self.clock[-1]
        for block in sorted(blocks, key=lambda block: self.gaps[block][::-1], reverse=True):
            free = min(free, self.clock[self.gaps[block][1]]) - self.seconds[block]
            begun[block] = max(0, bisect_right(self.clock, free) - 1)
        return begun


def rewritten(program: Program, offloads: Collection[Offload]) -> Program:
    """The program with these copies. Their instructions and blocks have numbers behind all others."""
    return _Rewrite(program).result(sorted(offloads)) if offloads else program


class _Rewrite:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.uses = Uses(program.instructions).steps
        self.next_block = program.next_block
        self.next_number = program.next_number
        self.before: dict[int, list[Instruction]] = defaultdict(list)
        self.moved: dict[int, dict[int, int]] = defaultdict(dict)  # {step: {block: the one it came back to}}
        self.sizes: dict[int, int] = {}
        self.host_sizes: dict[int, int] = {}

    def result(self, offloads: Collection[Offload]) -> Program:
        to_host = [(one, *self._blocks(one)) for one in offloads]
        for one, host, _ in to_host:  # what leaves goes before what comes
            self._copy(one, one.block, host, one.out, one.ended)
        for one, host, back in to_host:
            self._copy(one, host, back, one.begun, one.back)
        made: list[Instruction] = []
        for step, instruction in enumerate(self.program.instructions):
            made += self.before[step]
            made.append(over_blocks(instruction, self.moved[step]) if step in self.moved else instruction)
        return replace(
            self.program,
            instructions=tuple(made),
            sizes=self.program.sizes | self.sizes,
            host_sizes=self.program.host_sizes | self.host_sizes,
        )

    def _blocks(self, one: Offload) -> tuple[int, int]:
        """The block in host memory, and the one in the arena that the value comes back to."""
        host, back = self.next_block, self.next_block + 1
        self.next_block += 2
        self.host_sizes[host] = self.sizes[back] = self.program.sizes[one.block]
        for step in self.uses[one.block]:
            if step >= one.back:
                self.moved[step][one.block] = back
        return host, back

    def _copy(self, one: Offload, source: int, target: int, begin: int, end: int) -> None:
        """Its beginning and its end, in the phase and the layer of the last use before the gap."""
        model = self.program.instructions[one.out - 1]
        operands = tuple(Operand(block, (self.program.sizes[one.block],), _BYTE, (1,), 0) for block in (source, target))
        for transfer, step in ((Transfer.BEGIN, begin), (Transfer.END, end)):
            self.before[step].append(
                Instruction(self.next_number, "copy", operands, {}, model.phase, model.layer, 0, transfer=transfer)
            )
            self.next_number += 1
