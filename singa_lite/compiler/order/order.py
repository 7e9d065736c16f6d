"""The order in which a program needs least memory, of several. The recorded order always competes.

No placement needs less than the floor, the largest sum of live bytes, and the floor is a matter of order alone. Here dA
and dB are gradients, a column is a step, and a mark is a step at which the gradient is live:

    recorded:       make dB    make dA    update B   update A
              dB       #          #          #
              dA                  #          #          #       two at a time

    updates first:  make dB    update B   make dA    update A
              dB       #          #
              dA                             #          #       one at a time

Why several, and not the best one: to find the least floor is NP-hard, as register allocation is (Sethi, "Complete
register allocation problems", 1975); as an integer program (MODeL, 2023) it takes half an hour for 2,000 operations.
Greedy orders take milliseconds, and each of them is good for some nets and worse than the record for others. So a few
are made, each is scored by what counts in the end, and as the record is one of them, the result is never worse. What
counts is the floor after in-place writing: whether an input dies at an instruction, and may be written over, is a
matter of order too.

Sources: least peak first, depth first and breadth first are PyTorch Inductor's (torch/_inductor/memory.py); longest
path first is of Caffe2's memonger; updates first is what SINGA-315 does by hand.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from singa_lite.compiler.ir.operation import Phase
from singa_lite.compiler.ir.program import Program, floor, lifespans
from singa_lite.compiler.ir.uses import predecessors, successors
from singa_lite.compiler.share.in_place import in_place

#: Gives the instruction that is ready a number; the smallest goes next.
Priority = Callable[[int], float]


def in_least_order(program: Program) -> Program:
    """The order whose floor after in-place writing is lowest, of the program and its rivals; the one given in a tie.

    Of forms of one floor it is the one that takes least time. The others, each in its own best order, stay its rivals,
    those first that stood next to it: within a limit of the arena another one may take less time.
    """
    if program.keeps_order:
        return replace(program, rivals=())
    if not program.rivals:
        return _in_least_order(program, "")
    best = [_in_least_order(one, f"{one.order.removeprefix(program.order)}") for one in (program, *program.rivals)]
    floors = [floor(in_place(one)) for one in best]
    ties = [at for at, nbytes in enumerate(floors) if nbytes == min(floors)]
    least = min(ties, key=lambda at: sum(map(program.target.cost, best[at].instructions))) if ties[1:] else ties[0]
    others = sorted(range(len(best)), key=lambda at: abs(at - least))[1:]
    return replace(best[least], rivals=tuple(best[at] for at in others))


def _in_least_order(program: Program, form: str) -> Program:
    candidates = [replace(candidate, order=f"{name}{form}", rivals=()) for name, candidate in orders(program)]
    return min(candidates, key=lambda candidate: floor(in_place(candidate)))


def orders(program: Program) -> Iterator[tuple[str, Program]]:
    """Candidates by name: the recorded order first, then others that keep every dependency."""
    yield "recorded", program
    before = predecessors(program.instructions)
    after = successors(before)
    for name, order in (
        ("updates first", _updates_first(program, before, after)),
        ("least peak first", _least_peak(program, before, after)),
        ("longest path first", _longest_path(program, before, after)),
        ("depth first", _depth_first(before)),
        ("breadth first", _by_priority(before, after, lambda step: step)),
    ):
        yield name, program.with_instructions([program.instructions[step] for step in order])


def _by_priority(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]], priority: Priority) -> list[int]:
    """Kahn's algorithm: of those whose predecessors are all done, the one of the smallest priority."""
    missing = [len(earlier) for earlier in before]
    ready = [(priority(step), step) for step, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, step = heapq.heappop(ready)
        order.append(step)
        for later in after[step]:
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(ready, (priority(later), later))
    return order


def _updates_first(program: Program, before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> list[int]:
    """The recorded order, but whatever only frees memory (updates, last reads) as soon as it may run."""
    change = _changes(program)
    return _by_priority(before, after, lambda step: step - (len(before) if change[step] < 0 else 0))


def _longest_path(program: Program, before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> list[int]:
    """The instruction with the longest chain behind it goes first (as Caffe2's memonger orders).

    The mean of a loss, which nothing follows, goes as soon as it may, so that it is there before an update.
    """
    depth = [0] * len(before)
    for step in reversed(range(len(before))):
        depth[step] = 1 + max((depth[later] for later in after[step]), default=0)
    last = {step for step, later in enumerate(after) if not later}
    early = {step for step in last if program.instructions[step].phase != Phase.UPDATE}
    return _by_priority(before, after, lambda step: -len(before) if step in early else -depth[step])


def _depth_first(before: Sequence[Sequence[int]]) -> list[int]:
    """From the last instruction back: all that one needs right before it."""
    done: set[int] = set()
    order: list[int] = []
    for root in range(len(before)):
        stack = [(root, False)]
        while stack:
            step, expanded = stack.pop()
            if step in done:
                continue
            if expanded:
                done.add(step)
                order.append(step)
                continue
            stack.append((step, True))
            stack.extend((earlier, False) for earlier in reversed(before[step]) if earlier not in done)
    return order


def _changes(program: Program) -> list[int]:
    """Bytes that each instruction adds in the present order: blocks that begin there less those that end there."""
    change = [0] * len(program.instructions)
    for block, span in lifespans(program).items():
        change[span.start] += program.rounded(program.sizes[block])
        change[span.stop - 1] -= program.rounded(program.sizes[block])
    return change


def _least_peak(program: Program, before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> list[int]:
    """Greedy (LPMF of PyTorch's Inductor): of all that is ready, what adds the fewest bytes goes next.

    What an instruction adds depends on which of its inputs would die, so ready ones are weighed again whenever
    an input of theirs gets its last reader but one. Ties go to the recorded order.
    """
    weigh = _Weights(program)
    missing = [len(earlier) for earlier in before]
    ready = [(weigh(step), step) for step, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    done: set[int] = set()
    order: list[int] = []
    while ready:
        weight, step = heapq.heappop(ready)
        if step in done:
            continue
        now = weigh(step)
        if now != weight:  # an old entry: weights only fall or rise with what ran meanwhile
            heapq.heappush(ready, (now, step))
            continue
        done.add(step)
        order.append(step)
        for other in weigh.run(step):
            if other not in done and not missing[other]:
                heapq.heappush(ready, (weigh(other), other))
        for later in after[step]:
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
        for step, blocks in enumerate(self.blocks):
            for block in blocks:
                self.users.setdefault(block, set()).add(step)
        self.live: set[int] = set()

    def __call__(self, step: int) -> int:
        added = 0
        for block in self.blocks[step]:
            if block not in self.live:
                added += self.sizes[block]
            if len(self.users[block]) == 1:
                added -= self.sizes[block]
        return added

    def run(self, step: int) -> list[int]:
        """Note that it ran; returns the instructions whose weight has changed."""
        touched: list[int] = []
        for block in self.blocks[step]:
            users = self.users[block]
            users.discard(step)
            if block not in self.live:
                self.live.add(block)
                touched.extend(users)
            elif len(users) == 1:
                touched.extend(users)
        return touched
