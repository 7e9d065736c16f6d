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

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from singa_lite.compiler.ir.operation import Instruction, Operand, repeat_of
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.uses import Uses
from singa_lite.compiler.share.concat import are_disjoint
from singa_lite.kernels.interface import SIGNATURES

#: How a value is held: kept as it is; dropped, and kept from when it is first made again; kept only where it was made
#: for a reader of backward, not on the way to another value; made again for each reader. SEGMENT and above are depths
#: from 2 on: kept where it was made for a reader, and behind the last value of a smaller depth on the way there, of
#: which ONCE has 1. So what is between two cuts of a chain is cut again when it is made again, in any number of levels.
KEPT, ONCE, PER_CHAIN, PER_READER, SEGMENT = range(5)
#: Beyond any depth: of what is never kept on the way.
DEEPEST = 1 << 30


def depth_of(level: int) -> int:
    """Of a level: 1 of ONCE, from 2 on of SEGMENT and above."""
    if level >= SEGMENT:
        return level - SEGMENT + 2
    return 1 if level == ONCE else DEEPEST


def level_of(depth: int) -> int:
    """Of a value that is kept when it is made again for the `depth`-th time: the level; KEPT of 0."""
    return depth if depth <= ONCE else SEGMENT + depth - 2


#: Steps without a use, below which nothing is dropped.
LEAST_GAP = 8

#: {block: one of the above}
Levels = Mapping[int, int]


class Gap(NamedTuple):
    """Where a block is not used for the longest time, once it is whole: the steps of the uses before and behind."""

    before: int
    behind: int


class Repeater:
    """Repeats of a program's calls: what can be dropped and made again.

    only: which calls may be done again, by default all that can be. repeats: {step: what makes its results again}, of
    those that can be. candidates: {block: its gap} of blocks that can be dropped and made again. passing: all others
    that can be made again; they are, on the way to candidates, where a repeat reads one behind its last use: {block:
    its last use}. written, used: blocks of each repeat; users: {block: steps whose repeats use it, rising}; needs: the
    blocks of each repeat that it reads and that can be made again; inputs: these as `_input` has them; valid_until: the
    step until which it can be done.
    reading: {candidate: steps that use it behind its gap}; readers: the same the other way round.
    """

    def __init__(self, program: Program, only: Callable[[Instruction], bool] | None = None) -> None:
        self.program = program
        self._only = only
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
        self.written = {step: tuple({o.block for o in i.writes}) for step, i in self.repeats.items()}
        self.needs = {step: tuple({o.block for o in i.reads if o.block in gaps}) for step, i in self.repeats.items()}
        self.inputs = {step: [self._input(b, step) for b in blocks] for step, blocks in self.needs.items()}
        self.used = {step: self._used(i) for step, i in self.repeats.items()}
        self.users = self._users()
        self._alone, self._several = self._written_alone()
        self.reading = {b: [s for s in self.steps[b] if s >= gap.behind] for b, gap in self.candidates.items()}
        self.readers = self._readers()
        self.valid_until = {step: self._changed(step, i) for step, i in self.repeats.items()}

    def _repeatable(self) -> dict[int, Instruction]:
        """Returns by step the instructions that may be repeated. Left out are copies to host memory and back, writes to
        bytes that last, what must move once, and what would not give the same again.
        """
        given = {
            step: i
            for step, i in enumerate(self.program.instructions)
            if i.transfer is None and not SIGNATURES[i.kernel].facts.once
        }
        made = {step: self._repeat_call(i) for step, i in given.items() if self._only is None or self._only(i)}
        return {s: i for s, i in made.items() if all(operand.block in self.program.sizes for operand in i.writes)}

    def _repeat_call(self, original: Instruction) -> Instruction:
        """The call that makes its results again, with the scratch that it needs."""
        repeat = repeat_of(original)
        if repeat.kernel == original.kernel:
            return repeat
        nbytes = self.program.target.scratch_of(repeat.kernel, repeat.operands, repeat.settings)
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
        for block, steps in self.reading.items():
            for step in steps:
                read.setdefault(step, []).append(block)
        return read

    def _input(self, block: int, step: int) -> tuple[int, int, bool]:
        """Returns (block, the step until which it is there if dropped, whether it is a candidate) as a repeat reads it.

        What the repeat writes too is never there.
        """
        if block in self.written[step]:
            return block, -1, False
        gap = self.candidates.get(block)
        return (block, self.passing[block], False) if gap is None else (block, gap.before, True)

    def _used(self, instruction: Instruction) -> tuple[int, ...]:
        """Its intermediate blocks."""
        blocks = {o.block for o in instruction.operands if o is not None and o.block in self.program.sizes}
        return tuple(sorted(blocks))

    def _users(self) -> dict[int, list[int]]:
        users: dict[int, list[int]] = {}
        for step in sorted(self.used):
            for block in self.used[step]:
                users.setdefault(block, []).append(step)
        return users

    def _written_alone(self) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
        """By step, the blocks that its repeat alone writes, and those, if any, that others write too."""
        alone = {s: tuple(b for b in blocks if len(self.writers[b]) == 1) for s, blocks in self.written.items()}
        several = {s: tuple(b for b in blocks if b not in alone[s]) for s, blocks in self.written.items()}
        return alone, {step: blocks for step, blocks in several.items() if blocks}

    def blocks_made_by(self, steps: Collection[int]) -> frozenset[int]:
        """The blocks that these repeats write from end to end."""
        pieces = {block for step in self._several.keys() & steps for block in self._several[step]}
        whole = [block for block in pieces if set(steps).issuperset(self.writers[block])]
        return frozenset(whole).union(*map(self._alone.__getitem__, steps))

    def _changed(self, step: int, repeat: Instruction) -> int:
        """The step of the first write to what it reads, its own among them unless that is made again with it.

        Until there it can be repeated.
        """
        written, whole = self.written[step], self.needs[step]
        read = [o for o in repeat.reads if o.block not in written or o.block not in whole]
        later = (
            writer
            for operand in read
            for writer in self.writers[operand.block]
            if (writer > step or (writer == step and operand.block in written)) and self._overwrites(writer, operand)
        )
        return min(later, default=len(self.program.instructions))

    def _overwrites(self, step: int, operand: Operand) -> bool:
        """Whether the instruction writes bytes of the operand: it may write other pieces of a concatenation alone."""
        written = self.program.instructions[step].writes
        return any(o.block == operand.block and not are_disjoint(o, operand) for o in written)

    def chain(self, blocks: Iterable[int], is_absent: Callable[[int], bool]) -> set[int]:
        """The steps to repeat so that these blocks are there. is_absent: of a block that one of them reads."""
        needed, left = set[int](), [*blocks]
        seen = set(left)
        while left:
            for step in self.writers[left.pop()]:
                if step in needed:
                    continue
                needed.add(step)
                for block in self.needs[step]:
                    if block not in seen and (block in self.written[step] or is_absent(block)):
                        seen.add(block)
                        left.append(block)
        return needed
