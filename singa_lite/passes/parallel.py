"""Plans for instructions that may run at the same time: who may share bytes with whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from singa_lite.memory.problem import Request
from singa_lite.operation import Instruction
from singa_lite.passes.dependencies import ancestors, predecessors, successors
from singa_lite.passes.program import Program


def in_waves(program: Program) -> Program:
    """In `ready_order`. Nothing is written in place afterwards, as any order of a wave may change who reads last."""
    instructions = tuple(ready_order(program.instructions))
    return replace(program, instructions=instructions, order="dependencies", rivals=())


def ready_order(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Wave by wave: all whose dependencies are done, then all that have become ready (SINGA's RunGraph)."""
    before = predecessors(instructions)
    after = successors(before)
    missing = [len(earlier) for earlier in before]
    wave = [step for step, count in enumerate(missing) if not count]
    order: list[int] = []
    while wave:
        order += wave
        following = []
        for step in wave:
            for later in after[step]:
                missing[later] -= 1
                if not missing[later]:
                    following.append(later)
        wave = sorted(following)
    return [instructions[step] for step in order]


def conflicts(program: Program, wanted: Sequence[Request]) -> list[set[int]]:
    """For each of the requests, the indices of those before it that must not share bytes with it.

    Two blocks may share only if all uses of one are done, by dependencies, before any use of the other starts.
    That is a partial order on uses (vector clocks of OmniMalloc, tokens of Caffe2's memonger), kept here as a bit
    set of ancestors for each instruction.
    """
    clocks = ancestors(predecessors(program.instructions))
    users: dict[str, list[int]] = {}
    for step, instruction in enumerate(program.instructions):
        for operand in instruction.operands:
            if operand is not None and operand.block in program.sizes:
                users.setdefault(f"b{operand.block}", []).append(step)
        if instruction.scratch_bytes:
            users[f"s{instruction.number}"] = [step]
    uses = [sum(1 << step for step in set(users[request.id])) for request in wanted]
    before_all = [_common(clocks, users[request.id]) for request in wanted]
    found: list[set[int]] = []
    for one in range(len(wanted)):
        found.append({other for other in range(one) if not _ordered(uses, before_all, one, other)})
    return found


def _ordered(uses: Sequence[int], before_all: Sequence[int], one: int, other: int) -> bool:
    """Whether one of the two is done before the other starts."""
    if uses[one] & uses[other]:
        return False
    return uses[other] & ~before_all[one] == 0 or uses[one] & ~before_all[other] == 0


def _common(clocks: Sequence[int], steps: Sequence[int]) -> int:
    """Instructions that are done before any of these steps starts."""
    common = -1
    for step in steps:
        common &= clocks[step]
    return common
