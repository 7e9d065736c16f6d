"""A lower bound on the seconds of any schedule within a limit that keeps the order of the recorded calls.

The mixed-integer program of Checkmate (Jain and others, arXiv 1910.02653) for some steps of the program, the instants,
and the stages between them. Of each value that can be made again, `held` says whether it is there at an instant, and of
each call that writes it, `again` whether it is done again in a stage:

    again[k, writer]  <= held[k - 1, value] + again[k, its writer]   for each value that the writer reads
    held[k, value]    <= held[k - 1, value] + again[k, its writer]
    1                 <= held[k - 1, value] + again[k, its writer]   for each value that stage k uses
    bytes of all that is held, and of what each schedule has there   <= the limit, at each instant
    minimize the seconds of all that is done again

First both are fractions, for two choices of instants. Then, for two choices of few instants, they are 0 or 1: HiGHS
adds cutting planes, and what it has proved by then counts. What is done again by parts in several stages costs too
little there, so fewer instants are often better. Each relaxation lowers the bound only: the inside of stages, values
below `TINY` of the peak, values that were written over since, all instants but some, and calls that write over any
input that may die there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np

from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.recompute.live_bytes_model import pairs_of
from singa_lite.compiler.recompute.repeats import Repeater

#: Instants at which memory counts, with fractions and with whole decisions, and the share of the most bytes below which
#: a value does not count.
INSTANTS, WHOLE_INSTANTS, TINY = 48, 8, 1e-3
#: Share of the most live bytes from which on a step belongs to the peak.
PEAK = 0.75
#: Where whole decisions end: nodes of the search tree, the share of the time between the bound and a solution, and
#: seconds, as a guard: what is proved until then is a bound too.
ENOUGH = {"node_limit": 1, "mip_rel_gap": 0.005, "time_limit": 30.0}
#: (column, factor) of the variables of a row, and what their sum is at most.
_Row = tuple[Sequence[tuple[int, float]], float]
_Bytes = np.ndarray[Any, np.dtype[np.int64]]


@dataclass
class _Values:
    """Values that can be made again. sizes: in bytes; born: the step of the last write of the program.

    writers: of each value, numbers of calls; steps: of these calls; needs: of each call, numbers of the values it
    reads; seconds: of each call when it is repeated. uses: {step: values that it uses}.
    """

    sizes: _Bytes
    born: list[int]
    writers: list[list[int]]
    steps: list[int]
    needs: list[list[int]]
    seconds: list[float]
    uses: dict[int, set[int]]


def least_repeat_seconds(program: Program, limit: int) -> float | None:
    """Returns a lower bound on the seconds of all repeats within `limit` bytes of live blocks; None where no schedule
    keeps the limit.

    program: without repeats. ImportError without scipy; RuntimeError where its solver gives up.
    """
    repeater = Repeater(program)
    least = _least_live_bytes(program, repeater)
    if len(least) and least.max() > limit:
        return None
    values = _values(program, repeater, int(TINY * limit))
    bounds = [_solved(values, least, instants, limit) for instants in _choices_of_instants(least, INSTANTS)]
    if 0.0 < max(bounds) < inf:
        few = [_peaks(values, least), next(_choices_of_instants(least, WHOLE_INSTANTS))]
        bounds += [_solved(values, least, instants, limit, whole=True) for instants in few]
    return max(bounds) if max(bounds) < inf else None


def _least_live_bytes(program: Program, repeater: Repeater) -> _Bytes:
    """Of each step, the bytes that are live whatever is dropped: its scratch and operands, and what cannot be made
    again.
    """
    live = np.array([program.rounded(i.scratch_bytes) for i in program.instructions], np.int64)
    sizes = {block: program.rounded(nbytes) for block, nbytes in program.sizes.items()}
    droppable = {*repeater.candidates, *repeater.passing}
    for block, nbytes in sizes.items():
        steps = repeater.steps.get(block)
        if steps and block in droppable:
            live[steps] += nbytes
        elif steps:
            live[steps[0] : steps[-1] + 1] += nbytes
    for step, instruction in enumerate(program.instructions):
        for output, inputs in pairs_of(program, instruction):
            first = repeater.steps[output][0] == step
            if first and any(i in droppable or repeater.steps[i][-1] == step for i in inputs):
                live[step] -= sizes[output]
    return live


def _values(program: Program, repeater: Repeater, least: int) -> _Values:
    """All values of at least so many bytes that outlive the next steps, or that these are made of."""
    last = max((gap.before for gap in repeater.candidates.values()), default=-1)
    droppable = [*repeater.candidates, *(b for b in repeater.passing if repeater.writers[b][-1] <= last)]
    blocks = sorted(block for block in droppable if program.rounded(program.sizes[block]) >= least)
    number = {block: index for index, block in enumerate(blocks)}
    steps = sorted({step for block in blocks for step in repeater.writers[block]})
    call = {step: index for index, step in enumerate(steps)}
    uses: dict[int, set[int]] = {}
    for block, index in number.items():
        for step in repeater.steps[block]:
            uses.setdefault(step, set()).add(index)
    return _Values(
        np.array([program.rounded(program.sizes[block]) for block in blocks], np.int64),
        [repeater.writers[block][-1] for block in blocks],
        [[call[step] for step in repeater.writers[block]] for block in blocks],
        steps,
        [sorted(number[b] for b in {*repeater.needs[s]} - {*repeater.written[s]} if b in number) for s in steps],
        [program.target.cost(repeater.repeats[step]) for step in steps],
        uses,
    )


def _choices_of_instants(least: _Bytes, number: int) -> Iterator[list[int]]:
    """Yields steps with the most bytes of each of so many parts of the program, and evenly spread ones."""
    edges = np.unique(np.linspace(0, len(least), min(number, len(least)) + 1).astype(int))
    yield [int(start + np.argmax(least[start:stop])) for start, stop in pairwise(edges)]
    yield sorted({int(step) for step in edges[1:] - 1})


def _peaks(values: _Values, least: _Bytes) -> list[int]:
    """Two steps of the peak without repeats: with most live bytes, and with most of `least`; and the last step."""
    live = least.copy()
    for value, size in enumerate(values.sizes):
        used = [step for step, read in values.uses.items() if value in read]
        live[min(used) : max(used) + 1] += size
        live[used] -= size
    return sorted({int(live.argmax()), int(np.where(live >= PEAK * live.max(), least, -1).argmax()), len(least) - 1})


def _solved(values: _Values, least: _Bytes, instants: Sequence[int], limit: int, whole: bool = False) -> float:
    """The least seconds, or with whole decisions what they are proved to be at least; infinite where nothing fits."""
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array
    except ImportError as error:
        raise ImportError(
            "certificate: wanted SciPy, whose solver bounds the time, received a Python without it; "
            "to get it: pip install 'singa_lite[certificate]'"
        ) from error

    held, again = len(instants) * len(values.sizes), len(instants) * len(values.steps)
    if not held:
        return 0.0
    rows = [*_memory_rows(values, least, instants, limit), *_schedule_rows(values, instants)]
    data = [(row, column, factor) for row, (terms, _) in enumerate(rows) for column, factor in terms]
    at, columns, factors = (np.array(part) for part in zip(*data, strict=True))
    matrix = csr_array((factors, (at, columns)), shape=(len(rows), held + again))
    unit = max(values.seconds)
    cost = np.concatenate([np.zeros(held), np.tile(values.seconds, len(instants)) / unit])
    most = np.concatenate([_upper_bounds(values.born, instants), _upper_bounds(values.steps, [-1, *instants[:-1]])])
    found: Any = milp(
        cost,
        integrality=np.full(len(cost), int(whole)),
        bounds=Bounds(0, most),
        constraints=LinearConstraint(matrix, ub=[end for _, end in rows]),
        options=ENOUGH if whole else {},
    )
    if found.status == 2:
        return inf
    proved = found.mip_dual_bound if whole else found.fun
    if proved is None and not whole:
        raise RuntimeError(f"bound of the time: wanted a solution of the linear program, received {found.message}")
    return max(0.0, unit * float(proved or 0.0))


def _upper_bounds(steps: Sequence[int], instants: Sequence[int]) -> np.ndarray[Any, Any]:
    """1 for each instant and each step that is not behind it, else 0; instant after instant."""
    return (np.array(steps)[None, :] <= np.array(instants)[:, None]).astype(float).ravel()


def _memory_rows(values: _Values, least: _Bytes, instants: Sequence[int], limit: int) -> Iterator[_Row]:
    """Yields the limit at each instant. Bytes are in units of the largest value."""
    unit = float(max(values.sizes))
    for at, step in enumerate(instants):
        used = values.uses.get(step, set())
        terms = [(at * len(values.sizes) + v, size / unit) for v, size in enumerate(values.sizes) if v not in used]
        yield terms, (limit - int(least[step])) / unit


def _schedule_rows(values: _Values, instants: Sequence[int]) -> Iterator[_Row]:
    """Yields what must be there: for what is held on, for what a stage uses, and for what is done again in it."""
    count, calls = len(values.sizes), len(values.steps)
    begin = len(instants) * count

    def supply(stage: int, value: int) -> Iterator[list[tuple[int, float]]]:
        """Yields, for each writer, minus what is there of a value in a stage."""
        for writer in values.writers[value]:
            yield [((stage - 1) * count + value, -1.0), (begin + stage * calls + writer, -1.0)]

    for stage in range(1, len(instants)):
        before, end = instants[stage - 1], instants[stage]
        used = set[int]().union(*(values.uses.get(step, set()) for step in range(before + 1, end + 1)))
        born = [value for value, step in enumerate(values.born) if step <= before]
        for value in born:
            for terms in supply(stage, value):
                yield [(stage * count + value, 1.0), *terms], 0.0
                if value in used:
                    yield terms, -1.0
        for writer, step in enumerate(values.steps):
            if step <= before:
                for value in values.needs[writer]:
                    for terms in supply(stage, value):
                        yield [(begin + stage * calls + writer, 1.0), *terms], 0.0
