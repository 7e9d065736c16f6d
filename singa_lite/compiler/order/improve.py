"""Local improvement of an order: single instructions move out of the peak, or to where they free bytes earlier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from singa_lite.compiler.ir.operation import blocks_of
from singa_lite.compiler.ir.program import Program, floor, lifespans, live_bytes
from singa_lite.compiler.ir.uses import Uses, predecessors, successors
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
            order = list(program.instructions)
            order.insert(move.target - (move.origin < move.target), order.pop(move.origin))
            candidate = program.with_instructions(order)
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
    transfers = (i for i in program.instructions if i.transfer is not None)  # whose times are set
    touched = {block for i in (program.instructions[peak], *transfers) for block in blocks_of(i)}
    for block, span in lifespans(program).items():
        if block in touched or not span.start < peak < span.stop:
            continue
        first_reader = min(after[span.start], default=0)
        if first_reader > peak:
            yield Move(program.sizes[block], span.start, first_reader)
        last = span.stop - 1
        if max(before[last], default=-1) < peak:
            yield Move(program.sizes[block], last, peak)


def done_early(program: Program) -> Program:
    """The program with each instruction that ends more bytes than it begins right behind the last one that it needs.

        recorded:   dx = conv'(dy); dw = conv''(x, dy); update; total = dz + dx      dz and dx wait through the gradient
        here:       dx = conv'(dy); total = dz + dx; dw = conv''(x, dy); update      one of them does

    Where x is made again for the gradient, which takes as much as a block of a residual net needs, that is one
    derivative less. Only blocks count that nothing between the two uses. Where its floor would rise, the program stays.
    """
    moved = _earlier_places(program)
    if not moved:
        return program
    steps = range(len(program.instructions))
    order = sorted(steps, key=lambda step: (moved[step], 1, step) if step in moved else (step, 0, step))
    early = program.with_instructions([program.instructions[step] for step in order])
    return early if floor(in_place(early)) <= floor(in_place(program)) else program


def _earlier_places(program: Program) -> dict[int, int]:
    """{step of what is to be done earlier: the step that it goes behind}."""
    uses, found = Uses(program.instructions), dict[int, int]()
    for step, before in enumerate(predecessors(program.instructions)):
        behind = before[-1] if before else step
        if behind < step - 1 and _live_bytes_saved(program, uses, step, behind) > 0:
            found[step] = behind
    return found


def _live_bytes_saved(program: Program, uses: Uses, step: int, behind: int) -> int:
    """Bytes fewer that live between the two steps where the instruction is done right behind the earlier one."""
    nbytes = 0
    blocks = {o.block for o in program.instructions[step].operands if o is not None and o.block in program.sizes}
    for block in blocks:
        steps = uses.steps[block]
        if steps[0] == step:
            nbytes -= program.rounded(program.sizes[block])
        elif steps[-1] == step and steps[-2] <= behind:
            nbytes += program.rounded(program.sizes[block])
    return nbytes
