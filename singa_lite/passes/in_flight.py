"""What the proof knows of copies between the arena and host memory that are under way."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.memory.problem import PlanError
from singa_lite.operation import Instruction, Transfer
from singa_lite.passes.boxes import Box, cut

#: Bytes of a span: its number, and the bytes by address.
Bytes = tuple[int, Sequence[Box]]


class InFlight:
    """Copies that were begun and not waited for: they read and write at times that nobody knows."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Instruction, Bytes, Bytes]] = {}

    @property
    def any_open(self) -> bool:
        """Whether a copy is under way."""
        return bool(self._open)

    def check(self, instruction: Instruction, read: Sequence[Bytes], written: Sequence[Bytes]) -> None:
        """PlanError where an instruction reads or overwrites what a copy under way writes, or overwrites its source."""
        for copying, source, target in self._open.values():
            if any(_share(some, target) for some in (*read, *written)) or any(_share(some, source) for some in written):
                raise PlanError(
                    f"instruction {instruction.number} ({instruction.kernel}, layer {instruction.layer!r}): wanted the "
                    f"bytes left alone that copy {copying.number} reads or writes until it is waited for"
                )

    def turn(self, instruction: Instruction, source: Bytes, target: Bytes) -> None:
        """Begin a copy, or end it. PlanError for one that was begun and not ended, or not begun."""
        block = instruction.writes[0].block
        if instruction.transfer is Transfer.BEGIN:
            self.check(instruction, [source], [target])
            self._open[block] = instruction, source, target
            return
        begun = self._open.pop(block, None)
        if begun is None or begun[0].operands != instruction.operands:
            raise PlanError(f"copy {instruction.number}: wanted the end of one that was begun, received {instruction}")

    def check_ended(self) -> None:
        """PlanError where a copy was never waited for."""
        for copying, _, _ in self._open.values():
            raise PlanError(f"copy {copying.number}: wanted it waited for before the step ends")


def _share(some: Bytes, others: Bytes) -> bool:
    return some[0] == others[0] and any(cut(one, other)[0] for one in some[1] for other in others[1])
