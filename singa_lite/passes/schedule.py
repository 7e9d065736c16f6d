"""Schedule: which instructions are done again before which step, for what is dropped; kept up to date by changes.

A change of few levels touches few of the inserts, so only these are made anew, in the order of their steps: what one
of them keeps is there for those behind. A trial is undone by putting back what its tables held.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from singa_lite.operation import Instruction, Operand
from singa_lite.passes.program import Program
from singa_lite.passes.repeats import DEEPEST, KEPT, PER_READER, Repeater, depth_of

_ABSENT = object()


class Insert(NamedTuple):
    """What is done again before a step. repeats: steps, rising; whole: blocks that are made from end to end by them."""

    repeats: tuple[int, ...]
    whole: frozenset[int]


class Use(NamedTuple):
    """Of a block by an insert: the first and the last index among its repeats.

    is_made: whether it is a copy that is made there; stays: whether that copy is there for those behind.
    """

    first: int
    last: int
    is_made: bool
    stays: bool


#: Does nothing and makes nothing.
NOTHING = Insert((), frozenset())


class Journal:
    """Notes what tables held before they were changed."""

    def __init__(self) -> None:
        self._notes: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Set an entry."""
        self._notes.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def drop(self, table: dict[Any, Any], key: Any) -> None:
        """Remove an entry that is there."""
        self._notes.append((table, key, table.pop(key)))

    def undo(self) -> None:
        """Put all back since the last `forget`."""
        while self._notes:
            table, key, value = self._notes.pop()
            if value is _ABSENT:
                del table[key]
            else:
                table[key] = value

    def forget(self) -> None:
        """What was done stays."""
        self._notes.clear()


class Schedule:
    """The inserts for the levels of blocks. At first nothing is dropped.

    levels: of blocks that are dropped; inserts: by the step that they stand before; users: {block: {step of an insert:
    its use}}; stays_from: {dropped block: the step of the first insert whose copy of it stays}.
    """

    def __init__(self, of: Repeater) -> None:
        self.of = of
        self.journal = Journal()
        self.levels: dict[int, int] = {}
        self.inserts: dict[int, Insert] = {}
        self.users: dict[int, dict[int, Use]] = {}
        self.stays_from: dict[int, int] = {}

    def changed(self, levels: Mapping[int, int]) -> tuple[set[int], set[int]] | None:
        """Set levels; the blocks whose uses may have changed, and the steps of inserts that have.

        None where a block could not be made again: then it is for the caller to undo the journal.
        """
        blocks, steps = set(levels), set[int]()
        for block, level in levels.items():
            if level != KEPT:
                self.journal.put(self.levels, block, level)
            elif block in self.levels:
                self.journal.drop(self.levels, block)
        waiting = {step for block in levels for step in self._depending(block)}
        heap = sorted(waiting)
        while heap:
            step = heapq.heappop(heap)
            waiting.discard(step)
            made = self._insert(step)
            if made is None:
                return None
            stay = self._staying(step, made)
            if made == self.inserts.get(step, NOTHING) and stay == self._stayed(step, made):
                continue
            steps.add(step)
            for block in self._exchange(step, made, stay, blocks):
                for later in self._depending(block):
                    if later > step and later not in waiting:
                        waiting.add(later)
                        heapq.heappush(heap, later)
        return blocks, steps

    def _depending(self, block: int) -> Iterable[int]:
        """Steps before which something depends on how this block is held."""
        return {*self.of.reading.get(block, ()), *self.users.get(block, ())}

    def is_there(self, block: int, step: int) -> bool:
        """Whether a copy of a dropped block was made before this step, and stays."""
        return self.stays_from.get(block, step) < step and self.levels[block] != PER_READER

    def wanted(self, step: int) -> list[int]:
        """Dropped blocks that the step reads and that must be made for it."""
        read = self.of.readers.get(step, ())
        return [block for block in read if block in self.levels and not self.is_there(block, step)]

    def _insert(self, step: int) -> Insert | None:
        wanted = self.wanted(step)
        if not wanted:
            return NOTHING
        needed = self.of.chain(wanted, lambda block: self._is_absent(block, step))
        valid_until = self.of.valid_until
        if not all(one < step <= valid_until[one] for one in needed):
            return None
        written = {block for one in needed for block in self.of.written[one]}
        whole = {block for block in written if needed.issuperset(self.of.writers[block])}
        return Insert(tuple(sorted(needed)), frozenset(whole))

    def _is_absent(self, block: int, now: int) -> bool:
        last = self.of.passing.get(block)
        if last is not None:
            return last < now
        return block in self.levels and self.of.candidates[block].before < now and not self.is_there(block, now)

    def _staying(self, step: int, made: Insert) -> set[int]:
        """The copies of an insert that are there for those behind."""
        staying, least, levels = set(made.whole.intersection(self.wanted(step))), DEEPEST, self.levels
        if len(made.whole) == len(staying):
            return staying
        for block in sorted(made.whole, key=lambda block: -self.of.writers[block][-1]):
            depth = depth_of(levels.get(block, KEPT))
            if depth <= least and depth < DEEPEST:
                staying.add(block)
                least = depth
        return staying

    def _stayed(self, step: int, insert: Insert) -> set[int]:
        return {block for block in insert.whole if self.users[block][step].stays}

    def _exchange(self, step: int, made: Insert, stay: set[int], blocks: set[int]) -> set[int]:
        """Put an insert in the place of the old one, add the blocks used by both; those of which other copies stay."""
        put, drop, of = self.journal.put, self.journal.drop, self.of
        old = self.inserts.get(step, NOTHING)
        before = {block for one in old.repeats for block in of.used[one]}
        stayed, uses = self._stayed(step, old), dict[int, Use]()
        for index, one in enumerate(made.repeats):
            for block in of.used[one]:
                if block in made.whole or block not in of.written[one]:
                    first = uses[block].first if block in uses else index
                    uses[block] = Use(first, index, block in made.whole, block in stay)
        for block in before:
            if step in self.users.get(block, ()) and block not in uses:
                drop(self.users[block], step)
        for block, use in uses.items():
            put(self.users.setdefault(block, {}), step, use)
        put(self.inserts, step, made) if made.repeats else drop(self.inserts, step)
        blocks |= before | uses.keys()
        for block in stayed ^ stay:
            self._find_where_it_stays(block)
        return stayed ^ stay

    def _find_where_it_stays(self, block: int) -> None:
        steps = [step for step, use in self.users[block].items() if use.stays]
        if steps:
            self.journal.put(self.stays_from, block, min(steps))
        elif block in self.stays_from:
            self.journal.drop(self.stays_from, block)

    # ---- the program

    def program(self) -> Program:
        """The program with the inserts; repeats have numbers behind all others."""
        return _Writer(self).program()


class _Writer:
    """One walk that writes the program. current: {dropped block: the block that stands for it now}."""

    def __init__(self, schedule: Schedule) -> None:
        self.of = schedule.of
        self.schedule = schedule
        given = self.of.program
        self.sizes = dict(given.sizes)
        self.next_block = given.next_block
        self.number = max((i.number for i in given.instructions), default=-1)
        self.current: dict[int, int] = {}

    def program(self) -> Program:
        schedule, made = self.schedule, list[Instruction]()
        for step, instruction in enumerate(self.of.program.instructions):
            read = [block for block in self.of.readers.get(step, ()) if block in schedule.levels]
            made += self._inserted(step, schedule.inserts.get(step, NOTHING))
            made.append(_over(instruction, {block: self.current[block] for block in read}))
            for block in read:
                if schedule.levels[block] == PER_READER:
                    del self.current[block]
        return replace(self.of.program, instructions=tuple(made), sizes=self.sizes)

    def _inserted(self, step: int, insert: Insert) -> list[Instruction]:
        here = self.current | {block: self._new_block(block) for block in sorted(insert.whole)}
        made = [self._repeat(one, here, insert.whole) for one in insert.repeats]
        stay = {block for block in insert.whole if self.schedule.users[block][step].stays}
        self.current |= {block: here[block] for block in stay}
        return made

    def _repeat(self, step: int, here: Mapping[int, int], whole: Collection[int]) -> Instruction:
        """The repeat over the blocks that are here. What it writes of blocks that are not made whole nobody reads."""
        written = self.of.written[step]
        moved = {block: here[block] for block in self.of.needs[step] if block in here}
        moved |= {block: here[block] if block in whole else self._new_block(block) for block in written}
        self.number += 1
        return _over(replace(self.of.repeats[step], number=self.number), moved)

    def _new_block(self, like: int) -> int:
        block, self.next_block = self.next_block, self.next_block + 1
        self.sizes[block] = self.sizes[like]
        return block


def _over(instruction: Instruction, moved: Mapping[int, int]) -> Instruction:
    """The same call over other blocks."""
    if not moved:
        return instruction
    return instruction.with_operands(tuple(_moved(operand, moved) for operand in instruction.operands))


def _moved(operand: Operand | None, to: Mapping[int, int]) -> Operand | None:
    return operand._replace(block=to[operand.block]) if operand is not None and operand.block in to else operand
