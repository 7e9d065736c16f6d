"""What to copy to host memory and back, so that a program stays within so many bytes; repeats may do the rest.

Copies that are hidden behind computing cost nothing, so they come first, as many as the link takes. Where the step
waits for its copies, those come first that take less time than to compute the value again would at least.
Both are compared with repeats alone, and with copies of as many values as it takes; the cheapest is taken.

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
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from singa_lite.compiler.ir.operation import Instruction, Operand, Transfer, over_blocks
from singa_lite.compiler.ir.program import Program, floor, live_bytes
from singa_lite.compiler.ir.uses import Uses
from singa_lite.compiler.recompute.budget import Searches, copy_seconds, waiting, within_limit
from singa_lite.compiler.share.in_place import in_place

#: Smaller values are not copied.
LEAST_BYTES = 1 << 14
#: Of the excess over the limit, what one round of the choice goes for.
SHARE = 0.25
#: Groups of copies that are left out again on trial, in the end.
TRIALS = 60

_BYTE = np.dtype(np.uint8)

#: Bytes above the limit at best, and seconds of waiting and of repeats.
Cost = tuple[int, float]


def offloaded(program: Program, searches: Searches | None = None) -> Program:
    """The program with the copies that keep it within the target's limit in the least time, with repeats or without.

    searches: for repeats, which remember what was found for other limits.
    """
    limit, link = program.target.limit, program.target.link
    if limit is None or link is None or floor(in_place(program)) <= limit:
        return program
    costs: dict[tuple[Offload, ...], Cost] = {}
    for offloads in _candidates(_Choice(Timetable(program, link), limit)):
        if offloads not in costs:
            costs[offloads] = _cost(rewritten(program, offloads), limit, searches)
        if costs[offloads] == (0, 0.0):
            break
    cheapest = min(costs, key=costs.__getitem__)
    return rewritten(program, cheapest)


def _candidates(choice: _Choice) -> Iterator[tuple[Offload, ...]]:
    """Hidden copies need more bytes, as they take their time: the last resort is to wait for all of them."""
    yield choice.copies(lambda block: False)
    yield ()
    yield choice.copies(choice.is_cheap)
    yield choice.copies(lambda block: True)
    yield _Choice(choice.table, choice.limit, may_hide=False).copies(lambda block: True)


def _cost(candidate: Program, limit: int, searches: Searches | None) -> Cost:
    done = within_limit(candidate, searches)
    repeats = sum(done.target.cost(i) for i in done.instructions if i.repeats is not None)
    return max(0, floor(in_place(done)) - limit), waiting(candidate) + repeats


class _Choice:
    """Copies of one program's values, taken by the bytes above the limit that they free, a second that they cost."""

    def __init__(self, table: Timetable, limit: int, may_hide: bool = True) -> None:
        self.table = table
        self.may_hide = may_hide
        self.limit = limit
        self.program = table.program
        self.blocks = [block for block in table.gaps if self.program.sizes[block] >= LEAST_BYTES]
        self.writing: dict[int, float] = {}
        for instruction in self.program.instructions:
            for block in {operand.block for operand in instruction.writes}:
                self.writing[block] = self.writing.get(block, 0.0) + self.program.target.cost(instruction)

    def is_cheap(self, block: int) -> bool:
        """Whether to wait for both copies takes less time than what wrote the value did."""
        return 2 * self.table.seconds[block] < self.writing.get(block, 0.0)

    def copies(self, may_wait: Callable[[int], bool]) -> tuple[Offload, ...]:
        """As many copies as it takes, hidden ones first. may_wait: whether the step may wait for those of a block."""
        chosen: list[Offload] = []
        best, left = self.program, list(self.blocks)
        while floor(in_place(best)) > self.limit and left:
            added, left = self._next(best, chosen, left, may_wait)
            if len(added) == len(chosen):
                break
            chosen = added
            best = rewritten(self.program, chosen)
        return tuple(self._needless_left_out(chosen))

    def _next(
        self, best: Program, chosen: list[Offload], left: list[int], may_wait: Callable[[int], bool]
    ) -> tuple[list[Offload], list[int]]:
        """Those chosen, and the best of the blocks left, for a share of the excess; and the blocks left then."""
        over, excess = self._steps_above(best)
        freed = {block: self._freed(self.table.waited(block), over) for block in left}
        ranked = sorted((b for b in left if freed[b]), key=lambda b: (-freed[b] / self.table.seconds[b], b))
        wanted = SHARE * excess
        for at, block in enumerate(ranked):
            chosen, count = self._with_copies(chosen, block, may_wait), len(chosen)
            wanted -= self._freed(chosen[-1], over) if len(chosen) > count else 0
            if wanted <= 0:
                return chosen, ranked[at + 1 :]
        return chosen, []

    def _with_copies(self, chosen: list[Offload], block: int, may_wait: Callable[[int], bool]) -> list[Offload]:
        """Those chosen and the block's copies too, hidden where all can be, else waited for where they may be."""
        waited = [one for one in chosen if one.is_waited]
        if self.may_hide:
            hidden = self.table.hidden_copies([*(one.block for one in chosen if not one.is_waited), block])
            if all(one.ended < one.begun for one in hidden):
                return [*waited, *hidden]
        own = self.table.waited(block)
        return [*chosen, own] if own.ended < own.begun and may_wait(block) else chosen

    def _freed(self, offload: Offload, over: list[int]) -> int:
        """Bytes, at each step above the limit at which they are on the host."""
        return self.program.sizes[offload.block] * max(0, over[offload.begun] - over[offload.ended])

    def _steps_above(self, best: Program) -> tuple[list[int], int]:
        """At each step of the program as it was: how many before it have too many live bytes; and the excess of all."""
        live = live_bytes(in_place(best))
        pairs = zip(best.instructions, live, strict=True)
        above = [max(0, nbytes - self.limit) for instruction, nbytes in pairs if instruction.transfer is None]
        return [0, *accumulate(int(nbytes > 0) for nbytes in above)], sum(above)

    def _needless_left_out(self, chosen: list[Offload]) -> list[Offload]:
        """Without those that the limit, or what was reached of it, holds without: costliest first, in groups."""
        reached = max(self.limit, self._floor(chosen))
        left = sorted(chosen, key=lambda one: (not one.is_waited, -self.table.seconds[one.block], one))
        size, trials = max(1, len(left) // 4), TRIALS
        while left and trials > 0:
            kept: list[Offload] = []
            for start in range(0, len(left), size):
                trials -= 1
                if trials < 0 or self._floor([*kept, *left[start + size :]]) > reached:
                    kept += left[start : start + size]
            left = kept
            if size == 1:
                break
            size = max(1, size // 2)
        return sorted(left)

    def _floor(self, chosen: list[Offload]) -> int:
        return floor(in_place(rewritten(self.program, chosen)))


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

    def hidden_copies(self, blocks: Iterable[int]) -> list[Offload]:
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
