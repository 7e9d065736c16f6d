"""Local improvement of an order: move single instructions out of the peak, as long as the floor falls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program, floor, lifespans, live_bytes
from singa_lite.compiler.ir.uses import predecessors, successors
from singa_lite.compiler.share.in_place import in_place

#: Moves tried in all, and for one peak. Each costs a walk over the program: long ones get fewer.
TRIALS = 8
TRIALS_OF_A_PEAK = 4
INSTRUCTIONS_WALKED = 8_000


class Move(NamedTuple):
    """The instruction at step `origin` goes before the one at step `target`. nbytes: of the block it is about."""

    nbytes: int
    origin: int
    target: int


def improved(program: Program) -> Program:
    """The program in an order whose floor, after in-place writing, is at most that of the order given.

    At the peak, a block that is not in use there either waits for its first reader, and its producer may come
    later, or is kept for its last reader, which may come earlier. Such moves are tried, those of the largest
    blocks first, and kept if the floor falls.
    """
    given, placed = program, in_place(program)
    best, trials = floor(placed), min(TRIALS, 1 + INSTRUCTIONS_WALKED // (1 + len(program.instructions)))
    while trials > 0 and program.instructions:
        live = live_bytes(placed)
        moves = sorted(_moves(program, live.index(max(live))), key=lambda move: (-move.nbytes, move.origin))
        found = None
        for move in moves[: min(trials, TRIALS_OF_A_PEAK)]:
            trials -= 1
            candidate = _with_move(program, move)
            lowered = in_place(candidate)
            if floor(lowered) < best:
                found = candidate, lowered
                break
        if found is None:
            break
        program, placed = found
        best = floor(placed)
    return program if program is given else replace(program, order=f"{given.order}, improved")


def _moves(program: Program, peak: int) -> Iterator[Move]:
    """Moves that end a lifespan before the peak, or begin it after; each keeps every dependency."""
    before = predecessors(program.instructions)
    after = successors(before)
    touched = {o.block for i in (program.instructions[peak], *_transfers(program)) for o in i.operands if o is not None}
    for block, span in lifespans(program).items():
        if block in touched or not span.start < peak < span.stop:
            continue
        first_reader = min(after[span.start], default=0)
        if first_reader > peak:
            yield Move(program.sizes[block], span.start, first_reader)
        last = span.stop - 1
        if max(before[last], default=-1) < peak:
            yield Move(program.sizes[block], last, peak)


def _transfers(program: Program) -> Iterator[Instruction]:
    """Copies to host memory and back, whose times are set."""
    return (instruction for instruction in program.instructions if instruction.transfer is not None)


def _with_move(program: Program, move: Move) -> Program:
    """The program with one instruction moved."""
    order = list(program.instructions)
    instruction = order.pop(move.origin)
    order.insert(move.target - (move.origin < move.target), instruction)
    return program.with_instructions(order)
