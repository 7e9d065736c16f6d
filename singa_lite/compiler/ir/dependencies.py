"""Dependencies between instructions: read after write, write after write, write after read."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.compiler.ir.operation import Instruction


def predecessors(instructions: Sequence[Instruction]) -> list[list[int]]:
    """For each step, the steps that it depends on directly, rising.

    A block is taken as a whole: a read follows the last write of any part of it, a write follows the last write
    and all reads since.
    """
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    result = []
    for step, instruction in enumerate(instructions):
        before: set[int] = set()
        written = {operand.block for operand in instruction.writes}
        read = {operand.block for operand in instruction.reads}
        for block in read | written:
            if block in writer:
                before.add(writer[block])
        for block in written:
            before.update(readers.pop(block, ()))
            writer[block] = step
        for block in read - written:
            readers.setdefault(block, []).append(step)
        before.discard(step)
        result.append(sorted(before))
    return result


def successors(before: Sequence[Sequence[int]]) -> list[list[int]]:
    """The same relation the other way round."""
    after: list[list[int]] = [[] for _ in before]
    for step, earlier in enumerate(before):
        for one in earlier:
            after[one].append(step)
    return after


def ancestors(before: Sequence[Sequence[int]]) -> list[int]:
    """For each step, all that it depends on, directly or not, and itself, as a bit set."""
    sets: list[int] = []
    for step, earlier in enumerate(before):
        bits = 1 << step
        for one in earlier:
            bits |= sets[one]
        sets.append(bits)
    return sets
