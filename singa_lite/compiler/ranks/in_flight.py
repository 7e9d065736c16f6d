"""Work under way, for the proof: copies between the arena and host memory, and sums over processes."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.compiler.ir.boxes import Box, cut
from singa_lite.compiler.ir.collectives import BEGIN, kind_of
from singa_lite.compiler.ir.operation import Instruction, Transfer
from singa_lite.compiler.placement.problem import PlanError

#: Bytes of a span: its number, and the bytes by address.
Bytes = tuple[int, Sequence[Box]]


class InFlight:
    """Calls that were begun and not waited for: they read and write at times that nobody knows."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Instruction, Sequence[Bytes], Sequence[Bytes]]] = {}

    @property
    def any_open(self) -> bool:
        """Whether anything is under way."""
        return bool(self._open)

    def check(self, instruction: Instruction, read: Sequence[Bytes], written: Sequence[Bytes]) -> None:
        """PlanError where an instruction uses what is being written, or overwrites what is being read."""
        for begun, sources, targets in self._open.values():
            if _share_any((*read, *written), targets) or _share_any(written, sources):
                raise PlanError(
                    f"instruction {instruction.number} ({instruction.kernel}, layer {instruction.layer!r}): wanted the "
                    f"bytes left alone that {_called(begun)} reads or writes until it is waited for"
                )

    def turn(self, instruction: Instruction, source: Bytes, target: Bytes) -> None:
        """Begin a copy, or end it. PlanError for one that was begun and not ended, or not begun."""
        block = instruction.writes[0].block
        if instruction.transfer is Transfer.BEGIN:
            self.check(instruction, [source], [target])
            self._open[block] = instruction, [source], [target]
            return
        self._end(block, instruction)

    def turn_of_sum(self, instruction: Instruction, written: Sequence[Bytes]) -> None:
        """Begin a sum over processes, or end it. written: its values, and what comes from the others."""
        values, came = instruction.operands[:2]
        if values is None or came is None:
            raise PlanError(
                f"{_called(instruction)}: wanted values and where those of others come, received {instruction}"
            )
        if kind_of(instruction) == BEGIN:
            self.check(instruction, [], written)
            self._open[came.block] = instruction, [], written
            return
        self._end(came.block, instruction)

    def _end(self, key: int, instruction: Instruction) -> None:
        begun = self._open.pop(key, None)
        if begun is None or begun[0].operands != instruction.operands:
            raise PlanError(f"{_called(instruction)}: wanted the end of one that was begun, received {instruction}")

    def check_ended(self) -> None:
        """PlanError where something was never waited for."""
        for begun, _, _ in self._open.values():
            raise PlanError(f"{_called(begun)}: wanted it waited for before the step ends")


def _called(instruction: Instruction) -> str:
    return f"{'sum' if kind_of(instruction) else 'copy'} {instruction.number}"


def _share_any(some: Sequence[Bytes], others: Sequence[Bytes]) -> bool:
    return any(_share(one, other) for one in some for other in others)


def _share(some: Bytes, others: Bytes) -> bool:
    return some[0] == others[0] and any(cut(one, other)[0] for one in some[1] for other in others[1])
