"""Uses of a program's blocks, which passes look up, and the dependencies between instructions that follow from them.

These are read after write, write after write, and write after read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from singa_lite.compiler.ir.matching import CallPattern, matches
from singa_lite.compiler.ir.operation import Instruction


class Uses:
    """steps: {block: steps of the instructions that have an operand over it}; writers: of those that write it;
    kernels: {kernel: steps of its instructions}. All rise.
    """

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self._instructions = instructions
        self.steps: dict[int, list[int]] = defaultdict(list)
        self.writers: dict[int, list[int]] = defaultdict(list)
        self.kernels: dict[str, list[int]] = defaultdict(list)
        for step, instruction in enumerate(instructions):
            self.kernels[instruction.kernel].append(step)
            for block in {operand.block for operand in instruction.operands if operand is not None}:
                self.steps[block].append(step)
            for block in {operand.block for operand in instruction.writes}:
                self.writers[block].append(step)

    def described(self, step: int) -> tuple[str, list[int | None]]:
        """The kernel of the instruction at a step, and the block of each operand (`matching.CallTable`)."""
        instruction = self._instructions[step]
        return instruction.kernel, [None if operand is None else operand.block for operand in instruction.operands]

    def users(self, block: int) -> list[int]:
        """The steps of the instructions that use a block."""
        return self.steps[block]

    def places(self, pattern: Sequence[CallPattern]) -> Iterator[tuple[int, ...]]:
        """Yields the steps that stand for the pattern's calls, in its order: one place for each step of the first."""
        for first in sorted(step for kernel in pattern[0].kernels for step in self.kernels.get(kernel, ())):
            found = (steps for steps in matches(pattern, self, first) if len(set(steps)) == len(steps))
            yield from islice(found, 1)

    def is_used(self, block: int, start: int, until: int, but: Collection[int] = ()) -> bool:
        """Whether an instruction from step `start` to `until`, both inclusive, uses the block; those of `but` may."""
        return not set(_steps_between(self.steps[block], start, until)) <= set(but)

    def is_changed(self, block: int, start: int, until: int, but: Collection[int] = ()) -> bool:
        """The same of those that write it."""
        return not set(_steps_between(self.writers[block], start, until)) <= set(but)


def _steps_between(steps: Sequence[int], start: int, until: int) -> Sequence[int]:
    """Those of rising steps that are from `start` to `until`, both inclusive."""
    return steps[bisect_left(steps, start) : bisect_right(steps, until)]


def first_addition(instructions: Sequence[Instruction], sums: Collection[int], values: Collection[int]) -> int:
    """The first step that adds a gradient to one of the sums; the number of steps where there is none.

    It is the first that writes a sum by more than constants, sums and values (parameters). What multiplies a sum by a
    constant to make it ready may lie anywhere in a plan.
    """
    known = {*sums, *values}
    for step, instruction in enumerate(instructions):
        written = {operand.block for operand in instruction.writes}
        if all(operand.block in known for operand in instruction.reads):
            known |= written
        elif not written.isdisjoint(sums):
            return step
        else:
            known -= written
    return len(instructions)


def predecessors(instructions: Sequence[Instruction]) -> list[list[int]]:
    """For each step, the steps that it depends on directly, rising.

    A block is taken as a whole: a read follows the last write of any part of it, a write follows the last write
    and all reads since.
    """
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    result = []
    for step, instruction in enumerate(instructions):
        before: set[int] = set()
        written = {operand.block for operand in instruction.writes}
        read = {operand.block for operand in instruction.reads}
        for block in read | written:
            if block in writer:
                before.add(writer[block])
        for block in written:
            before.update(readers.pop(block, ()))
            writer[block] = step
        for block in read - written:
            readers.setdefault(block, []).append(step)
        before.discard(step)
        result.append(sorted(before))
    return result


def successors(before: Sequence[Sequence[int]]) -> list[list[int]]:
    """The same relation the other way round."""
    after: list[list[int]] = [[] for _ in before]
    for step, earlier in enumerate(before):
        for one in earlier:
            after[one].append(step)
    return after
