"""Sketch: live bytes and cost of a schedule, kept up to date by changes, without making its program.

The search for repeats makes some thousand trials, each of which moves the ends of few lifespans. What it gets is what
`in_place` and `live_bytes` would say of the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.operation import Instruction, Operand
from singa_lite.passes.program import Program
from singa_lite.passes.repeats import PER_READER, Repeater
from singa_lite.passes.schedule import NOTHING, Schedule

#: An output, and the inputs that it may be written over if they die there.
Pair = tuple[int, tuple[int, ...]]
#: From the first place of use to the last one.
Span = tuple[int, int]
#: Below any bytes: of steps without an insert.
NEVER = -(1 << 60)


class Mark(NamedTuple):
    """The state that `Sketch.back_to` goes back to: the vectors of bytes as they were, and the cost."""

    at_step: np.ndarray
    across: np.ndarray
    within: np.ndarray
    cost: int


class Sketch:
    """Live bytes of a program for the levels of its blocks; at first nothing is dropped.

    A place is a step, or a repeat that stands before one: `step * places + index of the repeat`, where the step's own
    index is `places - 1`. at_step: bytes live at each step; across: of those blocks that live through all that is
    inserted before it; within: the most that the insert itself adds to these. cost: of all repeats, in whole numbers,
    so that it does not depend on how the levels were reached. costs: {step: of its repeat}.
    """

    def __init__(self, repeater: Repeater, costs: Mapping[int, int]) -> None:
        program = repeater.program
        self.of = repeater
        self.costs = costs
        self.schedule = Schedule(repeater)
        self.cost = 0
        self.places = len(program.instructions) + 2
        self.sizes = {block: program.rounded(nbytes) for block, nbytes in program.sizes.items()}
        self._pairs = {step: tuple(_pairs(program, i)) for step, i in enumerate(program.instructions)}
        self._pairs_again = {step: tuple(_pairs(program, i)) for step, i in repeater.repeats.items()}
        self._scratch = {step: program.rounded(i.scratch_bytes) for step, i in repeater.repeats.items()}
        self._spans = {b: self._spans_of(b) for b in self.sizes if repeater.steps.get(b)}
        self._saved: dict[int, int] = {}
        self._paid: dict[int, int] = {}
        scratch = [program.rounded(i.scratch_bytes) for i in program.instructions]
        self.at_step = np.array(scratch, np.int64)
        self.across = np.zeros(len(scratch), np.int64)
        self.within = np.full(len(scratch), NEVER, np.int64)
        for block, spans in self._spans.items():
            self._add(spans, self.sizes[block])
        self._save_at(range(len(scratch)))
        self.schedule.journal.forget()

    @property
    def levels(self) -> dict[int, int]:
        """Of the blocks that are dropped."""
        return self.schedule.levels

    @property
    def floor(self) -> int:
        """The most bytes that are live at a time."""
        if not len(self.at_step):
            return 0
        return max(int(self.at_step.max()), int((self.across + self.within).max()))

    def excess(self, limit: int) -> int:
        """Bytes above the limit, summed over steps and inserts."""
        steps, inserts = self.at_step - limit, self.across + self.within - limit
        return int(steps[steps > 0].sum()) + int(inserts[inserts > 0].sum())

    def over(self, limit: int) -> np.ndarray:
        """Of each step: 1 if it has more live bytes than the limit, and 1 if what is inserted before it has."""
        made: np.ndarray = (self.at_step > limit).astype(np.int64) + (self.across + self.within > limit)
        return made

    def live_bytes(self) -> list[int]:
        """Bytes live at each call of the program that the schedule gives."""
        live = []
        for step, nbytes in enumerate(self.at_step):
            if step in self.schedule.inserts:
                live += [int(self.across[step]) + inside for inside in self._inside(step)]
            live.append(int(nbytes))
        return live

    # ---- changes

    def mark(self) -> Mark:
        """Changes from here on can be taken back until the next mark."""
        self.schedule.journal.forget()
        return Mark(self.at_step.copy(), self.across.copy(), self.within.copy(), self.cost)

    def back_to(self, mark: Mark) -> None:
        """All as it was at the last mark, which is this one."""
        self.schedule.journal.undo()
        self.at_step, self.across, self.within = (vector.copy() for vector in mark[:3])
        self.cost = mark.cost

    def change(self, levels: Mapping[int, int]) -> bool:
        """Set levels of blocks; False where one could not be made again, and then only `back_to` may come next."""
        inserts = self.schedule.inserts
        changed = self.schedule.changed(levels)
        if changed is None:
            return False
        blocks, steps = changed
        ends = set[int]()
        for block in blocks:
            ends |= self._moved(block)
        last = self.places - 1
        self._save_at({end // self.places for end in ends if end % self.places == last})
        for step in steps:
            self._pay(step)
        for step in steps | {end // self.places for end in ends if end % self.places != last}:
            self.within[step] = max(self._inside(step)) if step in inserts else NEVER
        return True

    def _pay(self, step: int) -> None:
        """Count what an insert costs anew."""
        now = sum(self.costs[one] for one in self.schedule.inserts.get(step, NOTHING).repeats)
        self.cost += now - self._paid.get(step, 0)
        self.schedule.journal.put(self._paid, step, now)

    def _moved(self, block: int) -> set[int]:
        """Move the spans of a block; the ends that are no more, and the new ones."""
        old, new = self._spans[block], self._spans_of(block)
        if old == new:
            return set()
        differ = set(old) ^ set(new)
        self._add([span for span in old if span in differ], -self.sizes[block])
        self._add([span for span in new if span in differ], self.sizes[block])
        self.schedule.journal.put(self._spans, block, new)
        return {place for span in differ for place in span}

    def _spans_of(self, block: int) -> list[Span]:
        """Where the block is used, and each copy of it, in order."""
        places, schedule = self.places, self.schedule
        own = self.of.steps[block]
        level = schedule.levels.get(block)
        reading: Iterable[int] = ()
        until = own[-1]
        if level is not None:
            reading, until = self.of.reading[block], self.of.candidates[block].before
        spans = [(own[0] * places + places - 1, until * places + places - 1)]
        users = schedule.users.get(block)
        if not users and level is None:
            return spans
        current, users = 0, users or {}
        for step in sorted({*users, *reading}):
            here, use = current, users.get(step)
            if use is not None and use.is_made:
                here = len(spans)
                spans.append((step * places + use.first, step * places + use.last))
            elif use is not None:
                spans[here] = (spans[here][0], max(spans[here][1], step * places + use.last))
            if step in reading:
                spans[here] = (spans[here][0], step * places + places - 1)
            if use is not None and use.stays and level != PER_READER:
                current = here
        return spans

    def _add(self, spans: Iterable[Span], nbytes: int) -> None:
        places = self.places
        for start, end in spans:
            first, last = start // places, (end + 1) // places  # behind the last step that it is live at
            self.at_step[first:last] += nbytes
            self.across[first + 1 : last] += nbytes

    # ---- inserts and writing in place

    def _inside(self, step: int) -> list[int]:
        """Bytes at each repeat of an insert, beside those of `across`."""
        schedule, places = self.schedule, self.places
        insert = schedule.inserts.get(step, NOTHING)
        count, base = len(insert.repeats), step * places
        live = [self._scratch[one] for one in insert.repeats]
        changes = [0] * (count + 1)
        for block in {block for one in insert.repeats for block in self.of.used[one]}:
            for start, end in self._spans[block]:
                begins, ends = start >= base, end < base + places - 1
                if (begins or ends) and start < base + count and end >= base:
                    changes[max(start - base, 0)] += self.sizes[block]
                    changes[min(end - base + 1, count)] -= self.sizes[block]
        level = 0
        for index, one in enumerate(insert.repeats):
            level += changes[index]
            live[index] += level
            waste = [block for block in self.of.written[one] if block not in insert.whole]
            live[index] += sum(self.sizes[block] for block in waste)
            live[index] -= self._saved_by(self._pairs_again[one], base + index, waste)
        return live

    def _save_at(self, steps: Iterable[int]) -> None:
        """Count what is written in place at these steps anew."""
        for step in steps:
            pairs = self._pairs[step]
            if pairs:
                now = self._saved_by(pairs, step * self.places + self.places - 1)
                before = self._saved.get(step, 0)
                if now != before:
                    self.at_step[step] -= now - before
                    self.schedule.journal.put(self._saved, step, now)

    def _saved_by(self, pairs: tuple[Pair, ...], place: int, waste: Iterable[int] = ()) -> int:
        """Bytes of outputs that are new there and are written over inputs that die there. waste: nobody reads them."""
        saved, taken = 0, set[int]()
        for output, inputs in pairs:
            end = place if output in waste else next((end for start, end in self._spans[output] if start == place), -1)
            if end < 0:
                continue
            for given in inputs:
                if given not in taken and any(last == place for _, last in self._spans[given]):
                    saved += self.sizes[output]
                    if end > place:
                        taken.add(given)
                    break
        return saved


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
