"""A lower bound on the extra time of any schedule within a memory limit that keeps the recorded order of backward.

The mixed-integer program of Checkmate (Jain and others, arXiv 1910.02653) with its variables between 0 and 1, for a
program that has run forward once. Between instants of the backward part lie stages. Of each value of the forward part
that can be made again, a fraction is held at each instant, and a fraction is made in each stage:

    made[k, writer]                 <= held[k - 1, value] + made[k, its writer]   for each value that the writer reads
    held[k, value]                  <= held[k - 1, value] + made[k, its writer]
    1                               <= held[k - 1, value] + made[k, its writer]   for each value that stage k reads
    sum of held bytes + other bytes <= the limit                                  at each instant
    minimize the seconds of all that is made

Whatever is left out only lowers the bound: what lives while a value is made again, values below `TINY` of the peak,
those of the backward part that the search could drop, what was overwritten since, all instants but `INSTANTS` of them.
Seconds are those of the search's own time model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from singa_lite.compiler.ir.operation import Phase
from singa_lite.compiler.ir.program import Program, lifespans, live_bytes
from singa_lite.compiler.ir.time_model import seconds
from singa_lite.compiler.recompute.repeats import Repeater
from singa_lite.compiler.share.in_place import in_place

#: Instants of the backward part at which memory is looked at, and the part of the peak below which a value is ignored.
INSTANTS, TINY = 40, 1e-3


@dataclass
class Problem:
    """What a bound goes by.

    sizes: bytes of each value. other: bytes of all else at each instant. reading: values that the instruction at each
    instant reads, which are held whole there. wanted: values that each stage's instructions read; a stage ends with its
    instant. writers: of each value. needs: of each writer, the values that it reads. cost: seconds of each writer.
    whole: seconds of the step without repeats.
    """

    sizes: list[int]
    other: list[int]
    reading: list[set[int]]
    wanted: list[set[int]]
    writers: list[list[int]]
    needs: list[list[int]]
    cost: list[float]
    whole: float


def problem(program: Program) -> Problem:
    """Of a program without repeats, as the search is given it."""
    repeater, placed = Repeater(program), in_place(program)
    first = 1 + max(s for s, i in enumerate(program.instructions) if i.phase is Phase.FORWARD)
    forward = [b for b in (*repeater.candidates, *repeater.passing) if repeater.writers[b][-1] < first]
    free = {*forward, *repeater.candidates}  # what need not be there at an instant that does not use it
    live, spans = live_bytes(placed), lifespans(placed)
    values = [b for b in forward if program.rounded(program.sizes[b]) >= TINY * max(live)]
    number = {block: index for index, block in enumerate(values)}
    steps = sorted({writer for block in values for writer in repeater.writers[block]})
    instants = _instants(first, len(program.instructions))

    def read(start: int, stop: int) -> set[int]:
        used = (o.block for i in program.instructions[start:stop] for o in i.reads)
        return {number[block] for block in used if block in number}

    def other(step: int) -> int:
        used = {o.block for o in program.instructions[step].operands if o is not None} - {*values}
        lives = (b for b in free - used if b in spans and spans[b].start <= step < spans[b].stop)
        return max(0, live[step] - sum(program.rounded(program.sizes[b]) for b in lives))

    return Problem(
        [program.rounded(program.sizes[block]) for block in values],
        [other(step) for step in instants],
        [read(step, step + 1) for step in instants],
        [read(a + 1, b + 1) for a, b in zip([first - 1, *instants], instants, strict=False)],
        [[steps.index(writer) for writer in repeater.writers[block]] for block in values],
        [
            sorted(
                {number[o.block] for o in repeater.repeats[s].reads if o.block in number} - _own(repeater, s, number)
            )
            for s in steps
        ],
        [seconds(repeater.repeats[step]) for step in steps],
        sum(seconds(instruction) for instruction in program.instructions),
    )


def _own(repeater: Repeater, step: int, number: dict[int, int]) -> set[int]:
    """Values that the step itself writes."""
    return {number[block] for block in repeater.written[step] if block in number}


def _instants(first: int, stop: int) -> list[int]:
    """Steps of the backward part, evenly spread, its first among them."""
    return sorted({int(step) for step in np.linspace(first, stop - 1, min(INSTANTS, stop - first))})


def extra_time(of: Problem, limit: int) -> float | None:
    """The bound as a share of the step's time; None where no schedule keeps the limit.

    limit: bytes of the arena. ImportError without scipy; RuntimeError where its solver gives up.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    values, writers, count = len(of.sizes), len(of.cost), len(of.other)
    rows = list(_rows(of, limit))
    data = [(row, column, factor) for row, (terms, _) in enumerate(rows) for column, factor in terms]
    at, columns, factors = (np.array(part) for part in zip(*data, strict=True))
    matrix = csr_array((factors, (at, columns)), shape=(len(rows), count * (values + writers)))
    least = np.zeros(count * (values + writers))
    for instant, reading in enumerate(of.reading):
        least[[instant * values + value for value in reading]] = 1.0
    most = np.ones_like(least)
    most[count * values : count * values + writers] = 0.0  # nothing is made again before the first instant
    cost = np.concatenate([np.zeros(count * values), np.tile(of.cost, count)])
    bounds, ends = np.stack([least, most], 1), np.array([end for _, end in rows])
    found: Any = linprog(cost, A_ub=matrix, b_ub=ends, bounds=bounds, method="highs")
    if found.status == 2:
        return None
    if found.status != 0:
        raise RuntimeError(f"bound: wanted a solution, received {found.message}")
    return max(0.0, float(found.fun)) / of.whole


#: (column, factor) of the variables in a row, and what their sum is at most.
_Row = tuple[Sequence[tuple[int, float]], float]


def _rows(of: Problem, limit: int) -> Iterator[_Row]:
    """The inequalities. Columns: held by instant and value, then made by stage and writer."""
    values, writers, count = len(of.sizes), len(of.cost), len(of.other)

    def there(stage: int, value: int, writer: int) -> list[tuple[int, float]]:
        """Minus what is there of a value in a stage, as far as this writer of its pieces goes."""
        return [((stage - 1) * values + value, -1.0), (count * values + stage * writers + writer, -1.0)]

    unit = float(max(of.sizes, default=1))  # so that all factors are about 1
    for instant in range(count):
        held = [(instant * values + value, size / unit) for value, size in enumerate(of.sizes)]
        yield held, (limit - of.other[instant]) / unit
    for stage in range(1, count):
        for value, made_by in enumerate(of.writers):
            for writer in made_by:
                yield [(stage * values + value, 1.0), *there(stage, value, writer)], 0.0
                if value in of.wanted[stage]:
                    yield there(stage, value, writer), -1.0
        for writer, needed in enumerate(of.needs):
            made = count * values + stage * writers + writer
            for value in needed:
                for maker in of.writers[value]:
                    yield [(made, 1.0), *there(stage, value, maker)], 0.0
