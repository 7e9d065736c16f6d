"""Workspaces: calls that are faster with more scratch get what the arena has free at their step.

A convolution of cuDNN is done by one engine or another, each with its workspace (`KernelSet.scratch_levels`). Programs
are placed with what the first of the good engines wants at least. Then, step by step, the gaps between what is live are
measured, and the call gets the largest workspace that fits into one. Nothing else moves, and the arena grows only where
a limit leaves room for it. A repeat gets what its original has, as its engine must give the same bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from singa_lite.compiler.ir.program import Program, lifespans, requests
from singa_lite.compiler.ir.target import no_levels
from singa_lite.compiler.placed import Placed
from singa_lite.compiler.placement.check import check
from singa_lite.compiler.proof.errors import request_labels


def with_target_scratch(program: Program) -> Program:
    """The program, each call with the scratch that the target's rule says: records go by that of their device."""
    target = program.target
    made = [replace(i, scratch_bytes=target.scratch_of(i.kernel, i.operands, i.settings)) for i in program.instructions]
    return program.with_instructions(made)


def has_levels(program: Program) -> bool:
    """Whether calls of the program are done in one way or another by their scratch."""
    levels = program.target.levels
    return levels is not no_levels and any(levels(i.kernel, i.operands, i.settings) for i in program.instructions)


def with_workspaces(placed: Placed, limit: int | None) -> Placed:
    """The same placement with larger workspaces where there is room, in an arena of at most `limit` bytes, or as it is.

    Lanes of a wave run at the same time, so plans in waves stay as they are.
    """
    program, capacity = placed.planned, max(placed.arena_bytes, limit or 0)
    if program.waves or not has_levels(program):
        return placed
    gaps = dict(_gaps(placed, capacity))
    sizes = _sizes(program, gaps)
    made = [replace(i, scratch_bytes=sizes.get(i.number, i.scratch_bytes)) for i in program.instructions]
    grown = program.with_instructions(made)
    offsets = placed.plan.offsets | {f"s{number}": _place(gaps[number], size) for number, size in sizes.items() if size}
    wanted = requests(grown)
    arena = max((offsets[request.id] + request.size for request in wanted), default=0)
    plan = replace(placed.plan, offsets={request.id: offsets[request.id] for request in wanted}, arena=arena)
    check(wanted, plan.offsets, plan.arena, told=request_labels(grown))
    return replace(placed, planned=grown, plan=plan)


#: (start, stop) of bytes that nothing live has at a step, of each instruction by number.
_Gaps = Mapping[int, list[tuple[int, int]]]


def _gaps(placed: Placed, capacity: int) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Of each call that has levels, with its number."""
    program = placed.planned
    begins, ends = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for block, span in lifespans(program).items():
        begins[span.start].append(block)
        ends[span.stop].append(block)
    live = set[int]()
    for step, instruction in enumerate(program.instructions):
        live -= set(ends[step])
        live |= set(begins[step])
        if program.target.levels(instruction.kernel, instruction.operands, instruction.settings):
            taken = sorted((placed.offsets[b], placed.offsets[b] + program.rounded(program.sizes[b])) for b in live)
            yield instruction.number, list(_free_spans(taken, capacity))


def _free_spans(taken: list[tuple[int, int]], capacity: int) -> Iterator[tuple[int, int]]:
    """What lies between these bytes, and behind them up to the capacity."""
    top = 0
    for start, stop in [*taken, (capacity, capacity)]:
        if start > top:
            yield top, start
        top = max(top, stop)


def _sizes(program: Program, gaps: _Gaps) -> dict[int, int]:
    """Scratch of each call that has levels: the largest for which it, and all repeats of it, have room."""
    sizes, of_original = dict[int, int](), dict[int, int]()
    for instruction in program.instructions:
        if instruction.number not in gaps:
            continue
        levels = program.target.levels(instruction.kernel, instruction.operands, instruction.settings)
        room = max((stop - start for start, stop in gaps[instruction.number]), default=0)
        fitting = [level for level in levels if program.rounded(level) <= room]
        original = instruction.number if instruction.repeats is None else instruction.repeats
        sizes[instruction.number] = max([instruction.scratch_bytes, *fitting])
        of_original[original] = min(of_original.get(original, sizes[instruction.number]), sizes[instruction.number])
    repeats = {i.number: i.number if i.repeats is None else i.repeats for i in program.instructions}
    return {number: of_original[repeats[number]] for number in sizes}


def _place(gaps: list[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that holds so many bytes."""
    return min((stop - start, start) for start, stop in gaps if stop - start >= size)[1]
