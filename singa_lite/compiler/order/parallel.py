"""Waves: which instructions may run at the same time, so that this is worth it and takes no more memory.

A wave is a run of instructions, of the order in which they need least memory, that stand in lanes which do not know of
each other. Lanes of one wave run at the same time, the instructions of a lane one after the other; a wave begins when
the one before it is done. Most waves are one instruction, which may use all cores:

    order:    conv a   relu a   conv b   relu b   concat
    waves:   |       wave of two lanes          | wave  |
    lane 0   | conv a   relu a                  | concat|
    lane 1   | conv b   relu b                  |       |

Whoever is live in a wave of several lanes is live in all of it, so lifespans are those of steps made wider, and all
that plans one order plans this one: order search, writing in place, exact placement. What a value written in place
forbids is a dependency like any other. `races.py` proves the outcome, and shares no code with this file.

The cut into waves is a shortest path: from each step on, what each wave that begins there would take. A wave of several
lanes may hold no more bytes than the largest sum of live bytes in one order, so that the floor stays what it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from math import inf
from typing import NamedTuple

from singa_lite.common import threads
from singa_lite.compiler.ir.footprint import overlap
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program, floor, lifespans

#: Instructions of a wave at most: the path is found in a time that goes with how many there are times this.
WIDEST = 48
#: Seconds that it takes to begin and to await the lanes of a wave, with what Python does in one thread at a time
#: meanwhile (measured: with 60e-6 small nets lost a sixth of their speed), and the cores within one call.
BEGIN, JOIN = 200e-6, 10e-6
#: What so many cores within one call do, of what they would do if no core waited for another.
OF_CORES = 0.85
#: An arena of up to so many bytes is not spared.
SMALL = 1 << 20


def in_waves(program: Program) -> Program:
    """The program in waves, lane after lane. The floor is at most `SMALL`, or as it was."""
    if not program.instructions:
        return replace(program, order="dependencies", rivals=())
    order, waves = [], []
    for wave in _Path(program).waves():
        order += [step for lane in wave for step in lane]
        waves.append(tuple(map(len, wave)))
    together = [len(wave) > 1 for wave in waves for _ in range(sum(wave))]
    shared = _sharing(program, [step for step, several in zip(order, together, strict=True) if several])
    instructions = tuple(shared.get(step, program.instructions[step]) for step in order)
    return replace(program, instructions=instructions, waves=tuple(waves), order="dependencies", rivals=())


def _sharing(program: Program, steps: Sequence[int]) -> dict[int, Instruction]:
    """Those of the instructions that want more scratch where they are made for a share of the threads."""
    target, found = program.target, dict[int, Instruction]()
    if not target.share or not steps:
        return found
    with threads.sharing(target.share):
        for step in steps:
            i = program.instructions[step]
            nbytes = target.scratch_of(i.kernel, i.operands, i.settings)
            if nbytes > i.scratch_bytes:
                found[step] = replace(i, scratch_bytes=nbytes)
    return found


class _Path:
    """The cheapest cut of a program into waves."""

    def __init__(self, program: Program) -> None:
        self._lanes = program.target.lanes
        self._near = near_dependencies(program.instructions)
        self._seconds = [program.target.cost(instruction) for instruction in program.instructions]
        self._bytes = _Bytes(program)
        self._most = max(floor(program), SMALL)

    def waves(self) -> list[list[list[int]]]:
        """The steps of each lane of each wave."""
        count = len(self._seconds)
        best, begins = [0.0, *[inf] * count], [0] * (count + 1)
        for start in range(count):
            for stop, seconds in self._from(start):
                if best[start] + seconds < best[stop]:
                    best[stop], begins[stop] = best[start] + seconds, start
        found, stop = [], count
        while stop:
            found.append(self._lanes_of(begins[stop], stop))
            stop = begins[stop]
        return found[::-1]

    def _from(self, start: int) -> Iterator[tuple[int, float]]:
        """(end, seconds) of each wave that may begin at a step."""
        seconds = self._seconds[start]
        yield start + 1, min(seconds, seconds / (self._lanes * OF_CORES) + JOIN)  # by itself, on all cores
        apart = _IndependentGroups(self._seconds)
        for step in range(start, min(start + WIDEST, len(self._seconds))):
            if self._bytes.within(start, step + 1) > self._most:
                return
            apart.add(step, [one for one in self._near[step] if one >= start])
            if len(apart.sums) > 1:
                yield step + 1, BEGIN + max(_loads(apart.sums.values(), self._lanes))

    def _lanes_of(self, start: int, stop: int) -> list[list[int]]:
        """The steps of each lane of a wave: the longest group first, to the lane that is least loaded."""
        apart = _IndependentGroups(self._seconds)
        for step in range(start, stop):
            apart.add(step, [one for one in self._near[step] if one >= start])
        lanes = [list[int]() for _ in range(min(self._lanes, len(apart.sums)))]
        loads = [0.0] * len(lanes)
        for first in sorted(apart.sums, key=lambda one: (-apart.sums[one], one)):
            lane = loads.index(min(loads))
            loads[lane] += apart.sums[first]
            lanes[lane] += apart.steps[first]
        return [sorted(lane) for lane in lanes]


def _loads(sums: Iterable[float], lanes: int) -> list[float]:
    """Seconds of each lane, the longest groups given out first."""
    loads = [0.0] * lanes
    for seconds in sorted(sums, reverse=True):
        loads[loads.index(min(loads))] += seconds
    return loads


class _IndependentGroups:
    """Groups of steps that depend on nothing of each other's, as steps are added. A group is named by one of its steps.

    sums: {group: seconds of its steps}. steps: {group: its steps}.
    """

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = seconds
        self._group: dict[int, int] = {}
        self.sums: dict[int, float] = {}
        self.steps: dict[int, list[int]] = {}

    def add(self, step: int, before: Iterable[int]) -> None:
        """A further step, which depends on these."""
        joined = {self._group[one] for one in before}
        into = max(joined, key=lambda one: len(self.steps[one]), default=step)
        self.steps.setdefault(into, []).append(step)
        self.sums[into] = self.sums.get(into, 0.0) + self._seconds[step]
        self._group[step] = into
        for other in joined - {into}:
            self.sums[into] += self.sums.pop(other)
            for one in self.steps[other]:
                self._group[one] = into
            self.steps[into] += self.steps.pop(other)


class _Bytes:
    """Bytes of all that is live at some time within a run of steps, and of all of its scratch."""

    def __init__(self, program: Program) -> None:
        count = len(program.instructions)
        begins, ends = [0] * (count + 1), [0] * (count + 1)
        for block, span in lifespans(program).items():
            nbytes = program.rounded(program.sizes[block])
            begins[span.start] += nbytes
            ends[span.stop] += nbytes
        scratch = [program.rounded(instruction.scratch_bytes) for instruction in program.instructions]
        #: Before each step: of all that began, of all that ended before or there, and of all scratch.
        self._begun = [0, *accumulate(begins[:-1])]
        self._ended = [*accumulate(ends)]
        self._scratch = [0, *accumulate(scratch)]

    def within(self, start: int, stop: int) -> int:
        """Bytes for the steps from `start` until before `stop`."""
        return self._begun[stop] - self._ended[start] + self._scratch[stop] - self._scratch[start]


class _Use(NamedTuple):
    """Of a block. writes: whether it changes bytes."""

    step: int
    operand: Operand
    writes: bool


def near_dependencies(instructions: Sequence[Instruction]) -> list[list[int]]:
    """For each step, those of the `WIDEST` steps before it that it depends on directly.

    By bytes, and not by blocks as in `uses.py`: those that write other pieces of a block than it are apart.
    """
    uses: dict[int, list[_Use]] = defaultdict(list)
    found = []
    for step, instruction in enumerate(instructions):
        written, before = instruction.writes, set[int]()
        own = [_Use(step, operand, True) for operand in written]
        own += [_Use(step, operand, False) for operand in instruction.reads if operand not in written]
        for use in own:
            near = uses[use.operand.block] = [one for one in uses[use.operand.block] if one.step >= step - WIDEST]
            for other in near:
                meets = (use.writes or other.writes) and other.step not in before
                if meets and overlap(other.operand, use.operand, {}):
                    before.add(other.step)
        for use in own:
            uses[use.operand.block].append(use)
        found.append(sorted(before))
    return found
