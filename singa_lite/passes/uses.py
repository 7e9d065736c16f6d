"""Where a record uses its blocks: what the passes that rewrite operations look up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from singa_lite.operation import Instruction


class Uses:
    """steps: {block: steps of the instructions that have an operand over it}; writers: of those that write it."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.steps: dict[int, list[int]] = defaultdict(list)
        self.writers: dict[int, list[int]] = defaultdict(list)
        for step, instruction in enumerate(instructions):
            for block in {operand.block for operand in instruction.operands if operand is not None}:
                self.steps[block].append(step)
            for block in {operand.block for operand in instruction.writes}:
                self.writers[block].append(step)

    def is_written(self, block: int, after: int, until: int) -> bool:
        """Whether an instruction behind step `after`, up to `until` inclusive, writes the block."""
        return any(after < step <= until for step in self.writers[block])
