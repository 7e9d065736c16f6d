"""LiveBytesModel: live bytes and cost of a schedule, kept up to date by changes, without making its program.

The search for repeats makes some thousand trials, each of which moves the ends of few lifespans. What it gets is what
`in_place` and `live_bytes` would say of the program. Most trials fail: one that has to be cheaper within a limit ends
as soon as it is known not to be, first by its cost, then by the bytes at steps, last by those within inserts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.recompute.repeats import ONCE, PER_READER, Repeater
from singa_lite.compiler.recompute.schedule import Insert, Schedule
from singa_lite.kernels.interface import SIGNATURES

#: An output, and the inputs that it may be written over if they die there.
Pair = tuple[int, tuple[int, ...]]
#: A first and a last place of use, and the bytes that are more between them.
Span = tuple[int, int, int]
#: Below any bytes: of steps without an insert.
NEVER = -(1 << 60)


class Spans(NamedTuple):
    """Of a block and its copies. last: {the first place of use: the last one}; ends: all these last places."""

    last: dict[int, int]
    ends: frozenset[int]


class Mark(NamedTuple):
    """The state that `LiveBytesModel.back_to` restores: vectors of bytes, the cost, the notes of the journal."""

    at_step: np.ndarray
    across: np.ndarray
    within: np.ndarray
    cost: int
    notes: int


class LiveBytesModel:
    """Live bytes of a program for the levels of its blocks; at first nothing is dropped.

    A place is a step, or a repeat that stands before one: `step * places + the step that it repeats`, where the step's
    own is `places - 1`. at_step: bytes live at each step; across: of those blocks that live through all that is
    inserted before it; within: the most that the insert itself adds to these. cost: of all repeats, in whole numbers,
    so that it does not depend on how the levels were reached. costs: {step: of its repeat}; pairs: {step: its outputs,
    and what they may be written over}.
    """

    def __init__(self, repeater: Repeater, costs: Mapping[int, int]) -> None:
        program = repeater.program
        self.repeater = repeater
        self.costs = costs
        self.schedule = Schedule(repeater, costs)
        self.places = len(program.instructions) + 2
        self.sizes = {block: program.rounded(nbytes) for block, nbytes in program.sizes.items()}
        self.pairs = {step: tuple(pairs_of(program, i)) for step, i in enumerate(program.instructions)}
        self._pairs_again = {step: tuple(pairs_of(program, i)) for step, i in repeater.repeats.items()}
        self._scratch = {step: program.rounded(i.scratch_bytes) for step, i in repeater.repeats.items()}
        self._spans = {b: self._spans_of(b) for b in self.sizes if repeater.steps.get(b)}
        self._saved: dict[int, int] = {}
        scratch = [program.rounded(i.scratch_bytes) for i in program.instructions]
        self.at_step = np.array(scratch, np.int64)
        self.across = np.zeros(len(scratch), np.int64)
        self.within = np.full(len(scratch), NEVER, np.int64)
        self._add(
            [(start, end, self.sizes[block]) for block, of in self._spans.items() for start, end in of.last.items()]
        )
        self._save_at(range(len(scratch)))
        self.settle()

    @property
    def cost(self) -> int:
        """Of all repeats."""
        return self.schedule.cost

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

    def counts_above(self, limit: int) -> np.ndarray:
        """Of each step: 1 if it has more live bytes than the limit, and 1 if what is inserted before it has."""
        made: np.ndarray = (self.at_step > limit).astype(np.int64) + (self.across + self.within > limit)
        return made

    # ---- changes

    def mark(self) -> Mark:
        """Changes from here on can be taken back, until `settle`; those since an earlier mark still can too."""
        return Mark(self.at_step.copy(), self.across.copy(), self.within.copy(), self.cost, len(self.schedule.journal))

    def back_to(self, mark: Mark) -> None:
        """All as it was at a mark."""
        self.schedule.journal.undo(mark.notes)
        self.at_step, self.across, self.within = (vector.copy() for vector in mark[:3])
        self.schedule.cost = mark.cost

    def settle(self) -> None:
        """What was changed stays: no mark from before can be gone back to."""
        self.schedule.journal.forget()

    def change(self, levels: Mapping[int, int], cost: int | None = None, limit: int | None = None) -> bool:
        """Sets levels of blocks and returns whether all can be made again, for less than `cost` and within the limit.

        After False only `back_to` may come next.
        """
        changed = self.schedule.changed(levels, cost)
        if changed is None:
            return False
        waiting = self._move_spans(changed)
        if limit is not None and int(self.at_step.max()) > limit:
            return False
        for step in waiting:
            self._fill(step)
            if limit is not None and self.across[step] + self.within[step] > limit:
                return False
        return limit is None or self.floor <= limit

    def _move_spans(self, changed: tuple[set[int], set[int]]) -> set[int]:
        """Move the spans of blocks; all inserts in which something is otherwise then."""
        moved, last = list[Span](), self.places - 1
        for block in changed[0]:
            moved += self._moved_spans(block)
        self._add(moved)
        ends = {place for start, end, _ in moved for place in (start, end)}
        self._save_at({end // self.places for end in ends if end % self.places == last})
        return changed[1] | {end // self.places for end in ends if end % self.places != last}

    def _fill(self, step: int) -> None:
        """What is live within an insert, anew."""
        self.within[step] = max(self._inside(step)) if step in self.schedule.inserts else NEVER

    def _moved_spans(self, block: int) -> list[Span]:
        """The spans of a block as they are now: those that are no more, with its bytes less, and the new ones."""
        old, new = self._spans[block], self._spans_of(block)
        if old.last == new.last:
            return []
        size = self.sizes[block]
        self.schedule.journal.set_entry(self._spans, block, new)
        gone, come = old.last.items() - new.last.items(), new.last.items() - old.last.items()
        return [*((*span, -size) for span in gone), *((*span, size) for span in come)]

    def _spans_of(self, block: int) -> Spans:
        """Where the block is used, and each copy of it, in order."""
        places, schedule = self.places, self.schedule
        own = self.repeater.steps[block]
        level = schedule.levels.get(block)
        reading: Iterable[int] = ()
        until = own[-1]
        if level is not None:
            reading, until = self.repeater.reading[block], self.repeater.candidates[block].before
        first = own[0] * places + places - 1
        last = {first: until * places + places - 1}
        users = schedule.users.get(block) or {}
        current = first  # the copy that is there, by its first place
        for step in sorted({*users, *reading}):
            here, use = current, users.get(step)
            if use is not None and use.is_made:
                here = step * places + use.first
                last[here] = step * places + use.last
            elif use is not None:
                last[here] = max(last[here], step * places + use.last)
            if step in reading:
                last[here] = step * places + places - 1
            if use is not None and use.stays and level != PER_READER:
                current = here
        return Spans(last, frozenset(last.values()))

    def _add(self, moved: Sequence[Span]) -> None:
        """Count the bytes of spans: sums of what is more at each step than at the one before."""
        spans = np.array(moved, np.int64).reshape(-1, 3)
        first, last = spans[:, 0] // self.places, (spans[:, 1] + 1) // self.places  # behind the last that it is live at
        for vector, begin in ((self.at_step, first), (self.across, first + 1)):
            more = np.zeros(len(vector) + 1, np.int64)
            np.add.at(more, begin, spans[:, 2])
            np.subtract.at(more, np.maximum(last, begin), spans[:, 2])
            vector += np.cumsum(more[:-1])

    # ---- inserts and writing in place

    def _inside(self, step: int) -> list[int]:
        """Bytes at each repeat of an insert, beside those of `across`."""
        insert, spans, sizes, base = self.schedule.inserts[step], self._spans, self.sizes, step * self.places
        live, level, from_before = list[int](), 0, 0
        for one in insert.repeats:
            place, ending = base + one, 0
            for block in self.repeater.used[one]:
                use = self.schedule.users.get(block, {}).get(step)
                if use is None:
                    continue
                if use.is_made and use.first == one:
                    level += sizes[block]
                if use.last == one and place in spans[block].ends:
                    ending += sizes[block]
                    from_before += 0 if use.is_made else sizes[block]
            live.append(level + self._extra_bytes(one, place, insert))
            level -= ending
        return [nbytes + from_before for nbytes in live]

    def _extra_bytes(self, one: int, place: int, insert: Insert) -> int:
        """Scratch of a repeat, and what it writes that nobody reads, less what it writes over an input."""
        waste = [block for block in self.repeater.written[one] if block not in insert.whole]
        nbytes = self._scratch[one] + sum(self.sizes[block] for block in waste)
        pairs = self._pairs_again[one]
        return nbytes - self._saved_by(pairs, place, waste) if pairs else nbytes

    def _save_at(self, steps: Iterable[int]) -> None:
        """Count what is written in place at these steps anew."""
        for step in steps:
            pairs = self.pairs[step]
            if pairs:
                now = self._saved_by(pairs, step * self.places + self.places - 1)
                before = self._saved.get(step, 0)
                if now != before:
                    self.at_step[step] -= now - before
                    self.schedule.journal.set_entry(self._saved, step, now)

    def _saved_by(self, pairs: tuple[Pair, ...], place: int, waste: Iterable[int] = ()) -> int:
        """Bytes of outputs that are new there and are written over inputs that die there. waste: nobody reads them."""
        saved, taken = 0, set[int]()
        for output, inputs in pairs:
            end = place if output in waste else self._spans[output].last.get(place, -1)
            if end < 0:
                continue
            for given in inputs:
                if given not in taken and place in self._spans[given].ends:
                    saved += self.sizes[output]
                    if end > place:
                        taken.add(given)
                    break
        return saved


class LiveBytesBounds:
    """Lower bounds on live bytes that no choice of levels goes below, from a model before anything is dropped.

    Whatever is dropped, at each step its own operands are live, and so is what cannot be dropped there. A value that
    does not fit beside these somewhere in its gap must be dropped, and one that does not fit between those that read it
    must be made for each of them. So no trial needs to find that out. at_step: the least bytes of each step.
    """

    def __init__(self, model: LiveBytesModel) -> None:
        self._model = model
        self.at_step = self._whatever_is_dropped()
        of, sizes = model.repeater, model.sizes
        self._kept = {b: self._most(g.before, g.behind) + sizes[b] for b, g in of.candidates.items()}
        self._staying = {b: self._most(steps[0], steps[-1], steps) + sizes[b] for b, steps in of.reading.items()}

    @property
    def floor(self) -> int:
        """No choice has fewer live bytes."""
        return int(self.at_step.max()) if len(self.at_step) else 0

    def levels(self, limit: int) -> dict[int, int]:
        """Of the values that no choice within the limit keeps: the cheapest way to hold each that it may have."""
        dropped = [block for block, most in self._kept.items() if most > limit]
        return {block: PER_READER if self._staying[block] > limit else ONCE for block in dropped}

    def _whatever_is_dropped(self) -> np.ndarray:
        model, of = self._model, self._model.repeater
        program = of.program
        live = np.array([program.rounded(i.scratch_bytes) for i in program.instructions], np.int64)
        for block, nbytes in model.sizes.items():
            own, gap = of.steps.get(block), of.candidates.get(block)
            if own:
                live[own[0] : (own[-1] if gap is None else gap.before) + 1] += nbytes
                live[of.reading.get(block, [])] += nbytes
        for step, pairs in model.pairs.items():
            live[step] -= sum(model.sizes[output] for output, inputs in pairs if self._may_share(step, output, inputs))
        return live

    def _may_share(self, step: int, output: int, inputs: tuple[int, ...]) -> bool:
        """Whether an output may be written over an input at this step, at best."""
        of = self._model.repeater
        return of.steps[output][0] == step and any(
            of.steps[given][-1] == step
            or (given in of.candidates and (of.candidates[given].before == step or step in of.reading[given]))
            for given in inputs
        )

    def _most(self, start: int, stop: int, but: list[int] | None = None) -> int:
        """The most bytes that are live between two steps whatever is dropped. but: not at these steps."""
        between = self.at_step[start + 1 : stop]
        if but is not None:
            between = np.delete(between, [step - start - 1 for step in but[1:-1]])
        return int(between.max()) if len(between) else 0


def pairs_of(program: Program, instruction: Instruction) -> Iterator[Pair]:
    """Yields each intermediate output of a call that may be written over inputs of its form, with these."""
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
    if size is None or size != program.sizes.get(given.block) or size != output.stop:
        return False
    return sum(o is not None and o.block == given.block for o in instruction.operands) == 1
