"""Plans for instructions that may run at the same time: who may share bytes with whom."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.operation import Instruction
from singa_lite.passes.dependencies import ancestors, predecessors, successors
from singa_lite.passes.program import Program


def ready_order(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Wave by wave: all whose dependencies are done, then all that have become ready (SINGA's RunGraph)."""
    before = predecessors(instructions)
    after = successors(before)
    missing = [len(earlier) for earlier in before]
    wave = [place for place, count in enumerate(missing) if not count]
    order: list[int] = []
    while wave:
        order += wave
        following = []
        for place in wave:
            for later in after[place]:
                missing[later] -= 1
                if not missing[later]:
                    following.append(later)
        wave = sorted(following)
    return [instructions[place] for place in order]


def conflicts(program: Program) -> dict[str, set[str]]:
    """{request: all that must not share bytes with it}, by the ids of `program.requests`.

    Two blocks may share only if every use of one depends, directly or not, on ... every use of the other being
    done. That is a partial order on uses (vector clocks of OmniMalloc, tokens of Caffe2's memonger), kept here as
    a bit set of ancestors for each instruction.
    """
    clocks = ancestors(predecessors(program.instructions))
    users: dict[str, list[int]] = {}
    for place, instruction in enumerate(program.instructions):
        for operand in instruction.operands:
            if operand is not None and operand.block in program.sizes:
                users.setdefault(f"b{operand.block}", []).append(place)
        if instruction.scratch_bytes:
            users[f"s{instruction.number}"] = [place]
    masks = {name: sum(1 << place for place in set(places)) for name, places in users.items()}
    common = {name: _common(clocks, places) for name, places in users.items()}
    found: dict[str, set[str]] = {name: set() for name in users}
    names = list(users)
    for index, one in enumerate(names):
        for other in names[:index]:
            ordered = masks[other] & ~common[one] == 0 or masks[one] & ~common[other] == 0
            if not ordered or masks[one] & masks[other]:
                found[one].add(other)
                found[other].add(one)
    return found


def _common(clocks: Sequence[int], places: Sequence[int]) -> int:
    """Instructions that are done before any of these places starts."""
    common = -1
    for place in places:
        common &= clocks[place]
    return common
