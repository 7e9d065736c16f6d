"""Estimated times of copies between the arena and host memory, by the link and the rule of `time_model.py`.

Copies go on beside computing, and each direction has a clock of its own: a copy begins when it is asked for and the
one before it is done, and what waits for it is as late as its end.
"""

from __future__ import annotations

from math import fsum

from singa_lite.compiler.ir.operation import Transfer
from singa_lite.compiler.ir.program import Program, split_joined
from singa_lite.compiler.ir.time_model import BYTES, CALL


def copy_seconds(nbytes: int, link: float) -> float:
    """Of copying so many bytes in one direction. link: see `Target`."""
    return CALL + nbytes / (BYTES * link)


def waiting(program: Program) -> float:
    """Seconds that a program is later for its copies."""
    link = program.target.link
    if link is None or not program.host_sizes:
        return 0.0
    now = computing = 0.0
    free = {True: 0.0, False: 0.0}
    done: dict[int, float] = {}
    for instruction in program.instructions:
        if instruction.transfer is None:
            took = program.target.cost(instruction)
            now, computing = now + took, computing + took
            continue
        target = instruction.writes[0]
        if instruction.transfer is Transfer.BEGIN:
            out = target.block in program.host_sizes
            free[out] = done[target.block] = max(now, free[out]) + copy_seconds(target.nbytes, link)
        if instruction.transfer is Transfer.END:
            now = max(now, done[target.block])
    return now - computing


def is_free(program: Program) -> bool:
    """Whether it is what runs without a limit: the same repeats, and no copies to host memory."""
    made, free = (sorted(i.repeats for i in of if i.repeats is not None) for of in (program.instructions, program.free))
    return made == free and not program.host_sizes


def estimated_slowdown(program: Program, free: Program | None = None) -> float:
    """The time by which a program takes longer than without a limit: repeats and waiting for copies; as a share.

    free: the program without a limit, against which it is taken; another form of it may have been chosen, whose calls
    without the repeats take longer. None: it is this one without its repeats. Costs are asked for only where the
    program differs from the free one.
    """
    if program.free and is_free(program):
        return 0.0
    program = split_joined(program)  # as costs are of single calls
    cost, wait = program.target.cost, waiting(program)
    computed = [instruction for instruction in program.instructions if instruction.transfer is None]
    before = program.free if free is None else free.instructions
    before = before or tuple(instruction for instruction in computed if instruction.repeats is None)
    if not wait and before == tuple(computed):
        return 0.0
    return (fsum(map(cost, computed)) + wait) / fsum(map(cost, before)) - 1.0
