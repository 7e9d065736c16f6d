"""The order in which a program needs least memory, of several. The recorded order always competes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from singa_lite.passes.dependencies import predecessors, successors
from singa_lite.passes.in_place import in_place
from singa_lite.passes.program import Program, floor

#: Gives the instruction that is ready a number; the smallest goes next.
Priority = Callable[[int], float]


def in_least_order(program: Program) -> Program:
    """The order, or the rival, whose floor after in-place writing is lowest; the order given where others only tie."""
    candidates = [replace(candidate, order=name) for name, candidate in orders(program)]
    least = min((*candidates, *program.rivals), key=lambda candidate: floor(in_place(candidate)))
    return replace(least, rivals=())


def orders(program: Program) -> Iterator[tuple[str, Program]]:
    """Candidates by name: the recorded order first, then others that keep every dependency."""
    yield "recorded", program
    before = predecessors(program.instructions)
    after = successors(before)
    for name, order in (
        ("updates first", _updates_first(program, before, after)),
        ("least peak first", _least_peak(program, before, after)),
        ("longest path first", _longest_path(before, after)),
        ("depth first", _depth_first(before)),
        ("breadth first", _by_priority(before, after, lambda place: place)),
    ):
        yield name, program.with_instructions([program.instructions[place] for place in order])


def _by_priority(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]], priority: Priority) -> list[int]:
    """Kahn's algorithm: of those whose predecessors are all done, the one of the smallest priority."""
    missing = [len(earlier) for earlier in before]
    ready = [(priority(place), place) for place, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, place = heapq.heappop(ready)
        order.append(place)
        for later in after[place]:
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(ready, (priority(later), later))
    return order


def _updates_first(program: Program, before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> list[int]:
    """The recorded order, but whatever only frees memory (updates, last reads) as soon as it may run."""
    change = _changes(program)
    return _by_priority(before, after, lambda place: place - (len(before) if change[place] < 0 else 0))


def _longest_path(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> list[int]:
    """The instruction with the longest chain behind it goes first (as Caffe2's memonger orders)."""
    depth = [0] * len(before)
    for place in reversed(range(len(before))):
        depth[place] = 1 + max((depth[later] for later in after[place]), default=0)
    return _by_priority(before, after, lambda place: -depth[place])


def _depth_first(before: Sequence[Sequence[int]]) -> list[int]:
    """From the last instruction back: all that one needs right before it."""
    done: set[int] = set()
    order: list[int] = []
    for root in range(len(before)):
        stack = [(root, False)]
        while stack:
            place, expanded = stack.pop()
            if place in done:
                continue
            if expanded:
                done.add(place)
                order.append(place)
                continue
            stack.append((place, True))
            stack.extend((earlier, False) for earlier in reversed(before[place]) if earlier not in done)
    return order


def _changes(program: Program) -> list[int]:
    """Bytes that each instruction adds in the present order: blocks that begin there less those that end there."""
    change = [0] * len(program.instructions)
    last: dict[int, int] = {}
    seen: set[int] = set()
    for place, instruction in enumerate(program.instructions):
        for operand in instruction.operands:
            if operand is None or operand.block not in program.sizes:
                continue
            if operand.block not in seen:
                seen.add(operand.block)
                change[place] += program.rounded(program.sizes[operand.block])
            last[operand.block] = place
    for block, place in last.items():
        change[place] -= program.rounded(program.sizes[block])
    return change


def _least_peak(program: Program, before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> list[int]:
    """Greedy (LPMF of PyTorch's Inductor): of all that is ready, what adds the fewest bytes goes next.

    What an instruction adds depends on which of its inputs would die, so ready ones are weighed again whenever
    an input of theirs gets its last reader but one. Ties go to the recorded order.
    """
    weigh = _Weights(program)
    missing = [len(earlier) for earlier in before]
    ready = [(weigh(place), place) for place, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    done: set[int] = set()
    order: list[int] = []
    while ready:
        weight, place = heapq.heappop(ready)
        if place in done:
            continue
        now = weigh(place)
        if now != weight:  # an old entry: weights only fall or rise with what ran meanwhile
            heapq.heappush(ready, (now, place))
            continue
        done.add(place)
        order.append(place)
        for other in weigh.run(place):
            if other not in done and not missing[other]:
                heapq.heappush(ready, (weigh(other), other))
        for later in after[place]:
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(ready, (weigh(later), later))
    return order


class _Weights:
    """Bytes that an instruction would add if it ran next."""

    def __init__(self, program: Program) -> None:
        self.sizes = {block: program.rounded(size) for block, size in program.sizes.items()}
        self.blocks = [
            sorted({o.block for o in i.operands if o is not None and o.block in self.sizes})
            for i in program.instructions
        ]
        self.users: dict[int, set[int]] = {}
        for place, blocks in enumerate(self.blocks):
            for block in blocks:
                self.users.setdefault(block, set()).add(place)
        self.live: set[int] = set()

    def __call__(self, place: int) -> int:
        added = 0
        for block in self.blocks[place]:
            if block not in self.live:
                added += self.sizes[block]
            if len(self.users[block]) == 1:
                added -= self.sizes[block]
        return added

    def run(self, place: int) -> list[int]:
        """Note that it ran; returns the instructions whose weight has changed."""
        touched: list[int] = []
        for block in self.blocks[place]:
            users = self.users[block]
            users.discard(place)
            if block not in self.live:
                self.live.add(block)
                touched.extend(users)
            elif len(users) == 1:
                touched.extend(users)
        return touched
