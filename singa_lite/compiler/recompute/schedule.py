"""Schedule: which instructions are done again before which step, for what is dropped; kept up to date by changes.

A change of few levels touches few of the inserts, so only these are made anew, in the order of their steps: what one
of them keeps is there for those behind. Repeats of an insert are named by the steps that they repeat, so that what
one insert has more or less does not move its others. A trial is undone by putting back what its tables held.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from singa_lite.compiler.ir.operation import Instruction, over_blocks
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.recompute.repeats import DEEPEST, KEPT, ONCE, PER_READER, SEGMENT, Repeater, depth_of

_ABSENT = object()
#: Behind all steps.
NEVER = 1 << 60
#: Of a block: its level, and the step of the first insert whose copy of it stays.
Held = tuple[int, int]


class Insert(NamedTuple):
    """Repeats that are inserted before a step. repeats: steps, rising; whole: blocks that are made from end to end by
    them; stays: those of them whose copies are there for what is behind; cost: of all repeats.
    """

    repeats: tuple[int, ...]
    whole: frozenset[int]
    stays: frozenset[int]
    cost: int


class Use(NamedTuple):
    """Of a block by an insert: the steps that the first and the last of its repeats that use it repeat.

    is_made: whether it is a copy that is made there; stays: whether that copy is there for those behind.
    """

    first: int
    last: int
    is_made: bool
    stays: bool


#: Does nothing and makes nothing.
NOTHING = Insert((), frozenset(), frozenset(), 0)


class Journal:
    """Notes what tables held before they were changed."""

    def __init__(self) -> None:
        self._notes: list[tuple[dict[Any, Any], Any, Any]] = []

    def set_entry(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Set an entry."""
        self._notes.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def drop(self, table: dict[Any, Any], key: Any) -> None:
        """Remove an entry that is there."""
        self._notes.append((table, key, table.pop(key)))

    def __len__(self) -> int:
        """How many notes there are: where `undo` may go back to."""
        return len(self._notes)

    def undo(self, to: int) -> None:
        """Put all back that was changed since there were so many notes."""
        while len(self._notes) > to:
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

    costs: {step: of its repeat}, in whole numbers, by default 1; cost: of all repeats.
    levels: of blocks that are dropped; inserts: by the step that they stand before; users: {block: {step of an insert:
    its use}}; stays_from: {dropped block: the step of the first insert whose copy of it stays}.
    """

    def __init__(self, of: Repeater, costs: Mapping[int, int] | None = None) -> None:
        self.repeater = of
        self._costs = dict.fromkeys(of.repeats, 1) if costs is None else costs
        self.cost = 0
        self.journal = Journal()
        self.levels: dict[int, int] = {}
        self.inserts: dict[int, Insert] = {}
        self.users: dict[int, dict[int, Use]] = {}
        self.stays_from: dict[int, int] = {}

    def changed(self, levels: Mapping[int, int], below: int | None = None) -> tuple[set[int], set[int]] | None:
        """Set levels; the blocks whose uses may have changed, and the steps of inserts that have.

        None where a block could not be made again, or where all does not cost less than `below`: then it is for the
        caller to undo the journal, and `cost`.
        """
        before = {block: self._holding(block) for block in levels}
        for block, level in levels.items():
            if level != KEPT:
                self.journal.set_entry(self.levels, block, level)
            elif block in self.levels:
                self.journal.drop(self.levels, block)
        made = self._made_anew(before)
        if made is None:
            return None
        old = {step: self.inserts.get(step, NOTHING) for step in made}
        self.cost += sum(insert.cost - old[step].cost for step, insert in made.items())
        if below is not None and self.cost >= below:
            return None
        blocks = set(levels)
        for step, insert in made.items():
            blocks |= self._exchange(step, old[step], insert)
        return blocks, set(made)

    def _made_anew(self, before: dict[int, Held]) -> dict[int, Insert] | None:
        """The inserts that are others now, in the order of their steps. What they use is counted where they are put in
        the place of the old ones. None where one cannot be done again any more.

        before: how the blocks whose levels were changed were held; here with those that stay from elsewhere now.
        """
        made = dict[int, Insert]()
        waiting = dict[int, list[int]]()
        for block in before:
            for step in self._depending(block):
                waiting.setdefault(step, []).append(block)
        heap = sorted(waiting)
        while heap:
            step = heapq.heappop(heap)
            old = self.inserts.get(step, NOTHING)
            if not any(self._matters(block, step, before[block], old) for block in waiting[step]):
                continue
            insert = self._insert(step)
            if insert is None:
                return None
            if insert == old:
                continue
            made[step] = insert
            for block in old.stays ^ insert.stays:
                before.setdefault(block, self._holding(block))
                if self._stays_otherwise(block, step, block in insert.stays):
                    for later in self._depending(block):
                        if later > step:
                            if later not in waiting:
                                heapq.heappush(heap, later)
                            waiting.setdefault(later, []).append(block)
        return made

    def _holding(self, block: int) -> Held:
        return self.levels.get(block, KEPT), self.stays_from.get(block, NEVER)

    def _matters(self, block: int, step: int, before: Held, old: Insert) -> bool:
        """Whether an insert may be another one for a block: it is there where it was not, or its copy may stay."""
        was, since = before
        now = self.levels.get(block, KEPT)
        if was != now and block in old.whole:
            return True
        was_there = was == KEPT or (since < step and was != PER_READER)
        return was_there != (now == KEPT or (now != PER_READER and self.stays_from.get(block, NEVER) < step))

    def _depending(self, block: int) -> Iterable[int]:
        """Steps before which something depends on how this block is held."""
        return {*self.repeater.reading.get(block, ()), *self.users.get(block, ())}

    def has_copy(self, block: int, step: int) -> bool:
        """Whether a copy of a dropped block was made before this step, and stays."""
        return self.stays_from.get(block, step) < step and self.levels[block] != PER_READER

    def _insert(self, step: int) -> Insert | None:
        """What is done again before a step, as levels are now; None where that cannot be done again any more."""
        levels, of = self.levels, self.repeater
        read = of.readers.get(step, ())
        wanted = [block for block in read if block in levels and not self.has_copy(block, step)]
        if not wanted:
            return NOTHING
        needed = self._chain(wanted, step)
        if max(needed) >= step or step > min(map(of.valid_until.__getitem__, needed)):
            return None
        whole = of.blocks_made_by(needed)
        cost = sum(map(self._costs.__getitem__, needed))
        return Insert(tuple(sorted(needed)), whole, self._staying(whole, wanted), cost)

    def _chain(self, wanted: Sequence[int], now: int) -> set[int]:
        """The steps to repeat before a step so that these blocks are there: `Repeater.chain`, which takes longer."""
        levels, stays_from = self.levels, self.stays_from
        writers, inputs = self.repeater.writers, self.repeater.inputs
        needed, left = set[int](), [*wanted]
        seen = set(left)
        while left:
            for step in writers[left.pop()]:
                if step in needed:
                    continue
                needed.add(step)
                for block, until, is_candidate in inputs[step]:
                    if until >= now or block in seen:
                        continue
                    if is_candidate:
                        level = levels.get(block)
                        if level is None or (level != PER_READER and stays_from.get(block, now) < now):
                            continue
                    seen.add(block)
                    left.append(block)
        return needed

    def _staying(self, whole: frozenset[int], wanted: Sequence[int]) -> frozenset[int]:
        """The copies of an insert that are there for those behind."""
        levels = self.levels
        held = [block for block in whole if (level := levels.get(block, KEPT)) == ONCE or level >= SEGMENT]
        if any(levels[block] != ONCE for block in held):
            held = self._behind_cuts(held)
        return whole.intersection(wanted).union(held)

    def _behind_cuts(self, held: Iterable[int]) -> list[int]:
        """Of copies that may stay, those behind the last value of a smaller depth."""
        staying, least = list[int](), DEEPEST
        for block in sorted(held, key=lambda block: (-self.repeater.writers[block][-1], block)):
            depth = depth_of(self.levels[block])
            if depth <= least:
                staying.append(block)
                least = depth
        return staying

    def _exchange(self, step: int, old: Insert, made: Insert) -> set[int]:
        """Put an insert in the place of the old one; the blocks that it uses otherwise."""
        put, drop, of = self.journal.set_entry, self.journal.drop, self.repeater
        needed = set(made.repeats)
        otherwise = (old.whole ^ made.whole) | (old.stays ^ made.stays)
        otherwise = otherwise.union(*map(of.used.__getitem__, needed.symmetric_difference(old.repeats)))
        moved = set[int]()
        for block in otherwise:
            is_made = block in made.whole
            users = [one for one in of.users[block] if one in needed and (is_made or block not in of.written[one])]
            uses = self.users.setdefault(block, {})
            use = Use(users[0], users[-1], is_made, block in made.stays) if users else None
            if use == uses.get(step):
                continue
            put(uses, step, use) if use is not None else drop(uses, step)
            moved.add(block)
        put(self.inserts, step, made) if made.repeats else drop(self.inserts, step)
        return moved

    def _stays_otherwise(self, block: int, step: int, stays: bool) -> bool:
        """Note that a copy stays from an insert on, or no more; whether the first that stays is another one then.

        Inserts are made anew in rising order, so those behind this one are as `users` tells.
        """
        first = self.stays_from.get(block, NEVER)
        if step > first:
            return False
        if stays:
            self.journal.set_entry(self.stays_from, block, step)
            return True
        behind = [later for later, use in self.users[block].items() if use.stays and later > step]
        if behind:
            self.journal.set_entry(self.stays_from, block, min(behind))
        else:
            self.journal.drop(self.stays_from, block)
        return True

    # ---- the program

    def program(self) -> Program:
        """The program with the inserts; repeats have numbers behind all others."""
        return _Writer(self).program()


class _Writer:
    """One walk that writes the program. current: {dropped block: the block that stands for it now}."""

    def __init__(self, schedule: Schedule) -> None:
        self.repeater = schedule.repeater
        self.schedule = schedule
        given = self.repeater.program
        self.sizes = dict(given.sizes)
        self.next_block = given.next_block
        self.number = given.next_number - 1
        self.current: dict[int, int] = {}

    def program(self) -> Program:
        schedule, made = self.schedule, list[Instruction]()
        for step, instruction in enumerate(self.repeater.program.instructions):
            read = [block for block in self.repeater.readers.get(step, ()) if block in schedule.levels]
            made += self._inserted(schedule.inserts.get(step, NOTHING))
            made.append(over_blocks(instruction, {block: self.current[block] for block in read}))
            for block in read:
                if schedule.levels[block] == PER_READER:
                    del self.current[block]
        return replace(self.repeater.program, instructions=tuple(made), sizes=self.sizes)

    def _inserted(self, insert: Insert) -> list[Instruction]:
        here = self.current | {block: self._new_block(block) for block in sorted(insert.whole)}
        made = [self._repeat(one, here, insert.whole) for one in insert.repeats]
        self.current |= {block: here[block] for block in insert.stays}
        return made

    def _repeat(self, step: int, here: Mapping[int, int], whole: Collection[int]) -> Instruction:
        """The repeat over the blocks that are here. What it writes of blocks that are not made whole nobody reads."""
        written = self.repeater.written[step]
        moved = {block: here[block] for block in self.repeater.needs[step] if block in here}
        moved |= {block: here[block] if block in whole else self._new_block(block) for block in written}
        self.number += 1
        return over_blocks(replace(self.repeater.repeats[step], number=self.number), moved)

    def _new_block(self, like: int) -> int:
        block, self.next_block = self.next_block, self.next_block + 1
        self.sizes[block] = self.sizes[like]
        return block
