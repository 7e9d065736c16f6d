"""Sums over the ranks go on while the walk back does: what waits for them, and what needs them, comes later.

    recorded:  make B, begin B, wait B, update B, make A, begin A, wait A, update A
    behind:    make B, begin B, make A, begin A, wait B, update B, wait A, update A

A sum is waited for when as many bytes are under way as there may be, or when nothing else is left. All that depends on
it comes behind, in its order; what does not depend on it passes by. From here on the beginnings and ends of sums keep
their order, which is the same on all ranks: each takes the block `turn` from the one before.

The passes behind, which look for an order of fewer bytes, put beginnings late and waits early, each as far as their
order lets them. So in the end they are moved apart once more.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, product

from singa_lite.compiler.ir.collectives import BEGIN, WAIT, has_any, kind_of, nbytes_of, values_of
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program
from singa_lite.kernels.collective import collective_of
from singa_lite.kernels.interface import SIGNATURES, Facts, Signature

#: It has no tensors, so that it changes nothing wherever it stands.
_POLL = Signature(
    SIGNATURES.own_name("parallel.poll"), (), (), frozenset(), ("call",), {}, Facts(collective="poll"), "own"
)
SIGNATURES.enter_own(_POLL)

#: Blocks that an instruction reads, and that it writes.
Blocks = tuple[frozenset[int], frozenset[int]]


def waiting_later(program: Program) -> Program:
    """The program with the waits as late as the limit of bytes under way allows."""
    return program.with_instructions(_Flight(by_limit=True).through(program)) if has_any(program) else program


def spread_sums(program: Program) -> Program:
    """The program with sums begun as early as they can be, and waited for as late, in the order that they have."""
    if not has_any(program):
        return program
    early = program.with_instructions(_begun_early(program.instructions))
    return early.with_instructions(_Flight(by_limit=False).through(early))


def _begun_early(instructions: tuple[Instruction, ...]) -> list[Instruction]:
    made: list[Instruction] = []
    for instruction in instructions:
        at = len(made)
        if kind_of(instruction) == BEGIN:
            reads, writes = _blocks(instruction)
            while at:
                read, written = _blocks(made[at - 1])
                if not (writes.isdisjoint(read | written) and reads.isdisjoint(written)):
                    break
                at -= 1
        made.insert(at, instruction)
    return made


class _Flight:
    """made: the program so far; those that wait stand in their order, and nothing that depends on them passes by.

    by_limit: whether beginnings go by the bytes under way, and make their order; else they keep the one they have.
    """

    def __init__(self, by_limit: bool) -> None:
        self.by_limit = by_limit
        self.made: list[Instruction] = []
        self.waiting: deque[Instruction] = deque()
        #: How many that wait read a block, write it, or sum it or a part of it; and which parts are summed.
        self.read: Counter[int] = Counter()
        self.written: Counter[int] = Counter()
        self.summed: Counter[int] = Counter()
        self.sums: Counter[tuple[int, int]] = Counter()
        #: What is under way.
        self.begun: set[tuple[int, int]] = set()
        self.level = 0

    def through(self, program: Program) -> list[Instruction]:
        for instruction in program.instructions:
            self._take(instruction)
        while self.waiting:
            self._next()
        return self.made

    def _take(self, instruction: Instruction) -> None:
        kind = kind_of(instruction)
        call = collective_of(instruction.settings) if kind in (BEGIN, WAIT) else None
        may_wait = kind == WAIT and call is not None and not call.is_urgent
        in_line = kind == BEGIN and call is not None and self.by_limit and call.in_line and bool(self.waiting)
        if may_wait or in_line or self._depends(instruction):
            self.waiting.append(instruction)
            self._count(instruction, 1)
            return
        if not self.by_limit:
            while kind_of(instruction) and any(self.sums.values()):  # a sum that waits stands before this one
                self._next()
        self._make(instruction)

    def _make(self, instruction: Instruction, has_waited: bool = False) -> None:
        """has_waited: what still waits comes behind it."""
        kind = kind_of(instruction)
        if kind == BEGIN:
            self._make_room(instruction, self._end_one if has_waited else self._next)
            self.begun.add(_place(instruction))
            self.level += nbytes_of(instruction)
        elif kind == WAIT:
            self.begun.remove(_place(instruction))
            self.level -= nbytes_of(instruction)
        self.made.append(instruction)

    def _make_room(self, instruction: Instruction, ended: Callable[[], bool]) -> None:
        """For the bytes of a sum: others are ended, until nothing is left that can be."""
        limit = collective_of(instruction.settings).in_flight_bytes
        while self.by_limit and self.level + nbytes_of(instruction) > limit:
            if not ended():
                return

    def _end_one(self) -> bool:
        """The end of the first sum that is under way; nobody who waits before it touches its values. False: of none."""
        for at, instruction in enumerate(self.waiting):
            if kind_of(instruction) == WAIT and _place(instruction) in self.begun:
                del self.waiting[at]
                self._count(instruction, -1)
                self._make(instruction)
                return True
        return False

    def _next(self) -> bool:
        """What waits first, and all behind it up to the next wait. False: nothing waits."""
        first = True
        while self.waiting and (first or kind_of(self.waiting[0]) != WAIT):
            instruction = self.waiting.popleft()
            self._count(instruction, -1)
            self._make(instruction, has_waited=True)
            first = False
        return not first

    def _depends(self, instruction: Instruction) -> bool:
        """On anything that waits. Sums of pieces of one gradient do not depend on each other."""
        reads, writes = _blocks(instruction, with_turn=False)
        if kind_of(instruction):
            if self.sums[_place(instruction)]:
                return True
        elif any(self.summed[block] for block in reads | writes):
            return True
        shared = {block for block in reads | writes if self.written[block]}
        shared |= {block for block in writes if self.read[block]}
        return bool(shared) and any(_reach(instruction, other, shared) for other in self.waiting)

    def _count(self, instruction: Instruction, step: int) -> None:
        reads, writes = _blocks(instruction, with_turn=False)
        if kind_of(instruction):
            self.sums[_place(instruction)] += step
            self.summed.update(dict.fromkeys(writes, step))
            return
        self.read.update(dict.fromkeys(reads, step))
        self.written.update(dict.fromkeys(writes, step))


def _place(instruction: Instruction) -> tuple[int, int]:
    """Where the values of a sum begin."""
    values = values_of(instruction)
    return values.block, values.offset


def _blocks(instruction: Instruction, with_turn: bool = True) -> Blocks:
    """with_turn: whether what keeps sums in their order is among them."""
    is_sum = kind_of(instruction) in (BEGIN, WAIT)
    turn = instruction.operands[2] if is_sum and not with_turn else None
    left = None if turn is None else turn.block
    reads, writes = (frozenset(o.block for o in some) - {left} for some in (instruction.reads, instruction.writes))
    return reads, writes


def _reach(one: Instruction, other: Instruction, blocks: set[int]) -> bool:
    """True if one call depends on the other by a tensor in these blocks: either writes what the other reads or writes.
    False if the other is a sum. Tiles of a parameter, or of its state, lie in one block and do not overlap.
    """
    if kind_of(other):
        return False
    pairs = chain(product(one.writes, (*other.reads, *other.writes)), product(one.reads, other.writes))
    shared = ((a, b) for a, b in pairs if a.block == b.block and a.block in blocks)
    return any(a.offset < b.stop and b.offset < a.stop for a, b in shared)


def polled(program: Program) -> Program:
    """A poll behind each call that runs while a sum is under way."""
    if not has_any(program):
        return program
    number = program.next_number
    made: list[Instruction] = []
    under_way = 0
    for instruction in program.instructions:
        made.append(instruction)
        kind = kind_of(instruction)
        under_way += {BEGIN: 1, WAIT: -1}.get(kind, 0)
        if kind == BEGIN:
            polling = collective_of(instruction.settings).polling()
            if polling is None:  # of sums on a GPU, by threads of their own
                return program
            settings = {"call": polling}
        if under_way and not kind:
            made.append(Instruction(number, _POLL.name, (), settings, instruction.phase, instruction.layer, 0))
            number += 1
    return replace(program, instructions=tuple(made))
