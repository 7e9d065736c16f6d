"""Repeats: values are dropped where they are not used for long, and made again where backward reads them.

    kept:      conv1 -- bn1 -- relu1 -- conv2 ...                       ... conv2' relu1' bn1' conv1'
                  |_______|_______|______________________________________________|
    repeated:  conv1 -- bn1 -- relu1 -- conv2 ...          ... bn1 again, relu1 again, conv2' relu1' bn1' conv1'
                  |___________________________________________________________________________|

What is made again are recorded calls over other blocks, so the results are the same, bit for bit (`operation.again`).
Chen and others, "Training deep nets with sublinear memory cost" (arXiv 1604.06174), repeat whole segments of a chain;
here each value is chosen for itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from singa_lite.operation import Instruction, Operand, again
from singa_lite.passes.program import Program
from singa_lite.passes.uses import Uses

#: How a value is held: kept as it is; dropped, and kept from when it is first made again; kept only where it was made
#: for a reader of backward, not on the way to another value; made again for each reader.
KEPT, ONCE, PER_CHAIN, PER_READER = range(4)

#: Steps without a use, below which nothing is dropped.
LEAST_GAP = 8

#: {block: one of the above}
Levels = Mapping[int, int]


class Call(NamedTuple):
    """An instruction of the program at its step, or its repeat. moved: {block: the block that stands for it here}."""

    step: int
    is_repeat: bool
    moved: Mapping[int, int]


@dataclass
class Schedule:
    """Calls in the order to run them. copies: the block of the program that each new block is like, in order."""

    calls: list[Call] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)


class Gap(NamedTuple):
    """Where a block is not used for the longest time, once it is whole: the steps of the uses before and behind."""

    before: int
    behind: int


class Repeater:
    """Schedules for one program, for any choice of what is dropped.

    repeats: {step: what makes its results again}, of those that can be. candidates: {block: its gap} of blocks that can
    be dropped and made again. passing: all others that can be made again; they are, on the way to candidates, where a
    repeat reads one behind its last use.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        uses = Uses(program.instructions)
        self.writers: Mapping[int, list[int]] = uses.writers
        self.steps: Mapping[int, list[int]] = uses.steps
        self.repeats = self._repeatable()
        gaps = {block: self._gap(block) for block in sorted(program.sizes) if self._can_be_made_again(block)}
        copied = {o.block for i in program.instructions if i.transfer is not None for o in i.reads}
        self.candidates = {
            block: gap for block, gap in gaps.items() if gap.behind - gap.before >= LEAST_GAP and block not in copied
        }
        self.passing = {block: self.steps[block][-1] for block in gaps if block not in self.candidates}
        self.plain = [Call(step, False, {}) for step in range(len(program.instructions))]
        self.written = {step: tuple({o.block for o in i.writes}) for step, i in self.repeats.items()}
        self.needs = {step: tuple({o.block for o in i.reads if o.block in gaps}) for step, i in self.repeats.items()}
        self.readers = self._readers()
        self.valid_until = {step: self._changed(step, i) for step, i in self.repeats.items()}

    def _repeatable(self) -> dict[int, Instruction]:
        """By step, all but copies to host memory and back, and what writes bytes that last: these must move once."""
        made = {step: self._again(i) for step, i in enumerate(self.program.instructions) if i.transfer is None}
        return {s: i for s, i in made.items() if all(operand.block in self.program.sizes for operand in i.writes)}

    def _again(self, original: Instruction) -> Instruction:
        """The call that makes its results again, with the scratch that it needs."""
        repeat = again(original)
        if repeat.kernel == original.kernel:
            return repeat
        nbytes = self.program.target.scratch_bytes(repeat.kernel, repeat.operands, repeat.settings)
        return replace(repeat, scratch_bytes=nbytes)

    def _can_be_made_again(self, block: int) -> bool:
        repeats = [self.repeats.get(writer) for writer in self.writers[block]]
        return bool(repeats) and all(i is not None and any(o.block == block for o in i.writes) for i in repeats)

    def _gap(self, block: int) -> Gap:
        last = self.writers[block][-1]
        uses = [step for step in self.steps[block] if step >= last]
        return max(
            (Gap(*pair) for pair in pairwise(uses)), key=lambda gap: gap.behind - gap.before, default=Gap(last, last)
        )

    def _readers(self) -> dict[int, list[int]]:
        """{step: candidates that it reads behind their gap}, in order."""
        read: dict[int, list[int]] = {}
        for block, gap in self.candidates.items():
            for step in self.steps[block]:
                if step >= gap.behind:
                    read.setdefault(step, []).append(block)
        return dict(sorted(read.items()))

    def _changed(self, step: int, repeat: Instruction) -> int:
        """The step of the first write to what it reads, its own among them unless that is made again with it.

        Until there it can be repeated.
        """
        written, whole = self.written[step], self.needs[step]
        read = {o.block for o in repeat.reads if o.block not in written or o.block not in whole}
        later = (w for block in read for w in self.writers[block] if w > step or (w == step and block in written))
        return min(later, default=len(self.program.instructions))

    def chain(self, blocks: Iterable[int], now: int, absent: Mapping[int, int]) -> set[int]:
        """The steps to repeat so that these blocks are there again at step `now`.

        absent: {block: the step of its last use until it is dropped}.
        """
        needed: set[int] = set()
        left, seen, never = [*blocks], {*blocks}, len(self.plain)
        while left:
            for step in self.writers[left.pop()]:
                if step in needed:
                    continue
                needed.add(step)
                for block in self.needs[step]:
                    if block not in seen and (absent.get(block, never) < now or block in self.written[step]):
                        seen.add(block)
                        left.append(block)
        return needed

    def absent(self, dropped: Iterable[int]) -> dict[int, int]:
        """{block: the step of its last use until it is there no more}, of passing ones and those that are dropped."""
        return self.passing | {block: self.candidates[block].before for block in dropped}

    def schedule(self, levels: Levels) -> Schedule | None:
        """What drops blocks as their levels say; None where one of them could not be made again."""
        return _Walk(self, {block: level for block, level in levels.items() if level != KEPT}).result()

    def rewritten(self, schedule: Schedule) -> Program:
        """The program of a schedule; repeats have numbers behind all others."""
        first, number = self.program.next_block, max(i.number for i in self.program.instructions)
        sizes = self.program.sizes | {first + n: self.program.sizes[b] for n, b in enumerate(schedule.copies)}
        made = []
        for call in schedule.calls:
            instruction = self.program.instructions[call.step]
            if call.is_repeat:
                number += 1
                instruction = replace(self.repeats[call.step], number=number)
            if call.moved:
                instruction = instruction.with_operands(tuple(_moved(o, call.moved) for o in instruction.operands))
            made.append(instruction)
        return replace(self.program, instructions=tuple(made), sizes=sizes)


def _moved(operand: Operand | None, to: Mapping[int, int]) -> Operand | None:
    return operand._replace(block=to[operand.block]) if operand is not None and operand.block in to else operand


class _Walk:
    """One walk through the program. current: {dropped block: the block that it was made again in, while it is kept}."""

    def __init__(self, of: Repeater, levels: Levels) -> None:
        self.of = of
        self.levels = levels
        self.absent = of.absent(levels)
        self.made = Schedule()
        self.current: dict[int, int] = {}
        self.next_block = of.program.next_block

    def result(self) -> Schedule | None:
        done, calls = 0, self.made.calls
        for step, read in self.of.readers.items():
            wanted = [block for block in read if block in self.levels]
            if wanted:
                calls += self.of.plain[done:step]
                done = step + 1
                absent = [block for block in wanted if block not in self.current]
                if absent and not self._make(absent, step):
                    return None
                calls.append(Call(step, False, {block: self.current[block] for block in wanted}))
                for block in wanted:
                    if self.levels[block] == PER_READER:
                        del self.current[block]
        calls += self.of.plain[done:]
        return self.made

    def _make(self, blocks: list[int], now: int) -> bool:
        """Append the repeats that these blocks need before step `now`; False if what one reads is there no more."""
        there = {block: self.absent.pop(block) for block in self.current}
        needed = self.of.chain(blocks, now, self.absent)
        self.absent |= there
        if not all(step < now <= self.of.valid_until[step] for step in needed):
            return False
        written = {block for step in needed for block in self.of.written[step]}
        whole = {block for block in written if needed.issuperset(self.of.writers[block])}
        here = self.current | {block: self._new_block(block) for block in sorted(whole)}
        self.made.calls += [self._repeat(step, here, whole) for step in sorted(needed)]
        for block in whole:
            if block in blocks or self.levels.get(block) == ONCE:
                self.current[block] = here[block]
        return True

    def _repeat(self, step: int, here: Mapping[int, int], whole: Collection[int]) -> Call:
        """The repeat over the blocks that are here. What it writes of blocks that are not made whole nobody reads."""
        written = self.of.written[step]
        moved = {block: here[block] for block in self.of.needs[step] if block in here}
        moved |= {block: here[block] if block in whole else self._new_block(block) for block in written}
        return Call(step, True, moved)

    def _new_block(self, like: int) -> int:
        self.made.copies.append(like)
        self.next_block += 1
        return self.next_block - 1
