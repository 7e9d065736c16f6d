"""Repeats: values of the forward part are dropped after their last use there and made again where backward reads them.

    kept:      conv1 -- bn1 -- relu1 -- conv2 ...                       ... conv2' relu1' bn1' conv1'
                  |_______|_______|______________________________________________|
    repeated:  conv1 -- bn1 -- relu1 -- conv2 ...          ... bn1 again, relu1 again, conv2' relu1' bn1' conv1'
                  |___________________________________________________________________________|

What is made again are recorded calls over other blocks, so the results are the same, bit for bit (`operation.again`).
Chen and others, "Training deep nets with sublinear memory cost" (arXiv 1604.06174), repeat whole segments of a chain;
here each value is chosen for itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from singa_lite.operation import Instruction, Operand, Phase, again
from singa_lite.passes.program import Program
from singa_lite.passes.uses import Uses

#: How a value is held: kept as it is; dropped, and kept from when it is first made again; kept only where it was made
#: for a reader of backward, not on the way to another value; made again for each reader.
KEPT, ONCE, PER_CHAIN, PER_READER = range(4)


class Repeater:
    """Rewrites one program for any choice of what is dropped.

    candidates: blocks that can be dropped and made again: intermediates that only repeatable instructions of the
    forward part write, and that backward reads.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.instructions = program.instructions
        self.start = next((s for s, i in enumerate(self.instructions) if i.phase is not Phase.FORWARD), 0)
        uses = Uses(self.instructions)
        self.writers: Mapping[int, list[int]] = uses.writers
        self.steps: Mapping[int, list[int]] = uses.places
        self.again = {s: self._repeatable(i) for s, i in enumerate(self.instructions[: self.start])}
        forward = [block for block in sorted(program.sizes) if self._can_be_made_again(block)]
        self.candidates = {block: self.steps[block] for block in forward if self.steps[block][-1] >= self.start}
        #: What only the forward part reads: not there any more behind it, and made again on the way to others.
        self.passing = {block: PER_CHAIN for block in forward if block not in self.candidates}
        self._next_number = 1 + max((i.number for i in self.instructions), default=0)
        self._valid_until = {s: self._changed(s, i) for s, i in self.again.items() if i is not None}

    def _repeatable(self, instruction: Instruction) -> Instruction | None:
        """What makes its results again; None where it writes what lasts beyond the step, which must move once."""
        made = again(instruction)
        return made if all(operand.block in self.program.sizes for operand in made.writes) else None

    def _can_be_made_again(self, block: int) -> bool:
        writers = self.writers[block]
        if not writers or writers[-1] >= self.start:
            return False
        repeats = [self.again[writer] for writer in writers]
        return all(i is not None and any(o.block == block for o in i.writes) for i in repeats)

    def _changed(self, step: int, repeat: Instruction) -> int:
        """The step of the first write to what it reads, behind its own: until there it can be repeated."""
        own = {operand.block for operand in repeat.writes}
        later = (w for o in repeat.reads if o.block not in own for w in self.writers[o.block] if w > step)
        return min(later, default=len(self.instructions))

    def chain(self, block: int, dropped: Collection[int]) -> set[int]:
        """The steps to repeat so that the block is there again, where all of `dropped` are not."""
        needed: set[int] = set()
        open_, seen = [block], {block}
        while open_:
            for writer in self.writers[open_.pop()]:
                repeat = self.again[writer]
                if writer in needed or repeat is None:
                    continue
                needed.add(writer)
                own = {operand.block for operand in repeat.writes}
                for operand in repeat.reads:
                    if (operand.block in dropped or operand.block in own) and operand.block not in seen:
                        seen.add(operand.block)
                        open_.append(operand.block)
        return needed

    def written(self, step: int) -> list[Operand]:
        """What the repeat of this instruction writes."""
        repeat = self.again[step]
        return [] if repeat is None else repeat.writes

    def rewritten(self, levels: Mapping[int, int]) -> Program | None:
        """The program that drops these blocks, each as its level says; None where one could not be made again."""
        dropped = {block: level for block, level in levels.items() if level != KEPT}
        return _Rewriting(self, self.passing | dropped).result()

    def can_repeat(self, step: int, now: int) -> bool:
        """Whether what the instruction of the forward part reads is still there, unchanged, before step `now`."""
        return now <= self._valid_until.get(step, -1)


class _Rewriting:
    """One walk. current: {dropped block: the block that it was made again in, while that is kept}."""

    def __init__(self, of: Repeater, levels: Mapping[int, int]) -> None:
        self.of = of
        self.levels = levels
        self.sizes = dict(of.program.sizes)
        self.made: list[Instruction] = list(of.instructions[: of.start])
        self.current: dict[int, int] = {}
        self.next_block = of.program.next_block
        self.next_number = of._next_number

    def result(self) -> Program | None:
        for step in range(self.of.start, len(self.of.instructions)):
            instruction = self.of.instructions[step]
            wanted = sorted({o.block for o in instruction.reads if o.block in self.levels})
            if wanted:
                if not self._make([block for block in wanted if block not in self.current], step):
                    return None
                instruction = instruction.with_operands(tuple(map(self._moved, instruction.operands)))
                for block in wanted:
                    if self.levels[block] == PER_READER:
                        del self.current[block]
            self.made.append(instruction)
        return replace(self.of.program, instructions=tuple(self.made), sizes=self.sizes)

    def _make(self, blocks: list[int], now: int) -> bool:
        """Append the repeats that these blocks need before step `now`; False if what one reads is not there any more."""
        absent = self.levels.keys() - self.current.keys()
        needed = set[int]().union(*(self.of.chain(block, absent) for block in blocks))
        if not all(self.of.can_repeat(step, now) for step in needed):
            return False
        written = {operand.block for step in needed for operand in self.of.written(step)}
        whole = {block for block in written if needed.issuperset(self.of.writers[block])}
        before = dict(self.current)
        self.current |= {block: self._new_block(block) for block in sorted(whole)}
        self.made += [self._repeat(step, whole) for step in sorted(needed)]
        for block in whole.difference(blocks):
            if self.levels.get(block) != ONCE:
                del self.current[block]
                if block in before:
                    self.current[block] = before[block]
        return True

    def _repeat(self, step: int, whole: Collection[int]) -> Instruction:
        """The instruction over other blocks. whole: those that are made again as a whole; of others nobody reads it."""
        repeat = self.of.again[step]
        assert repeat is not None
        aside = {o.block: self._new_block(o.block) for o in repeat.writes if o.block not in whole}
        operands = tuple(o and o._replace(block=aside[o.block]) if o and o.block in aside else self._moved(o) for o in repeat.operands)
        nbytes = repeat.scratch_bytes
        if repeat.kernel != self.of.instructions[step].kernel:
            nbytes = self.of.program.target.scratch_bytes(repeat.kernel, operands, repeat.settings)
        self.next_number += 1
        return replace(repeat, number=self.next_number - 1, operands=operands, scratch_bytes=nbytes)

    def _moved(self, operand: Operand | None) -> Operand | None:
        if operand is None or operand.block not in self.current:
            return operand
        return operand._replace(block=self.current[operand.block])

    def _new_block(self, like: int) -> int:
        self.sizes[self.next_block] = self.sizes[like]
        self.next_block += 1
        return self.next_block - 1
