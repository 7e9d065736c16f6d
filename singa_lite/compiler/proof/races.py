"""The proof that nothing that may run at the same time meets: none writes bytes that another one reads or writes.

That goes for the lanes of a wave, for the calls of a joined one, and for whatever runs while a copy to host memory or a
sum over processes is under way. Then whatever order they take, and however they overlap, each read gets what it gets
where one runs after the other; and that this is right is what `read_from.py` proves of the order as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from singa_lite.compiler.ir.boxes import Box, cut
from singa_lite.compiler.ir.collectives import BEGIN, WAIT, kind_of
from singa_lite.compiler.ir.footprint import boxes, run, span_of
from singa_lite.compiler.ir.operation import Instruction, Operand, Transfer, called
from singa_lite.compiler.ir.program import Program, single_calls
from singa_lite.compiler.placement.problem import PlanError


class _Access(NamedTuple):
    """An access to bytes by an instruction. start, stop: around all of them; span: which memory they lie in, see
    `span_of`. lane: of those of one lane none races with another.
    """

    span: int
    start: int
    stop: int
    lane: int
    writes: bool
    box: Box
    instruction: Instruction


def check_races(program: Program, offsets: Mapping[int, int], scratch: Mapping[int, int]) -> None:
    """PlanError unless the waves have each instruction once, and no lane writes bytes that another of its wave uses.

    offsets: {block: offset in the arena}; blocks that are not there have memory of their own. scratch: {number of an
    instruction: offset of its scratch}.
    """
    if not program.waves:
        return
    if sum(map(sum, program.waves)) != len(program.instructions) or not all(map(all, program.waves)):
        raise PlanError(
            f"waves: wanted lanes of {len(program.instructions)} instructions in all, received {program.waves}"
        )
    left = iter(program.instructions)
    for wave in program.waves:
        lanes = [[next(left) for _ in range(count)] for count in wave]
        used = (one for lane, calls in enumerate(lanes) for i in calls for one in _accesses(lane, i, offsets, scratch))
        race = _race(used) if len(lanes) > 1 else None
        if race is not None:
            one, other = race
            raise PlanError(
                f"waves: wanted {called(one.instruction)} and {called(other.instruction)} of two lanes apart, received "
                f"both at bytes of {'the arena' if one.span == -1 else f'held block {one.span}'} around "
                f"{other.start} to {min(one.stop, other.stop)}"
            )


def check_joined(program: Program, offsets: Mapping[int, int]) -> None:
    """PlanError for a joined call in which one writes what another uses: kernels do them in any order, or at once."""
    for joined in program.instructions:
        if joined.joins:
            used = (a for lane, call in enumerate(single_calls(joined)) for a in _accesses(lane, call, offsets))
            race = _race(used)
            if race is not None:
                raise PlanError(
                    f"{called(joined)}: wanted calls apart, received two that use bytes {race[1].start} to "
                    f"{min(each.stop for each in race)}"
                )


class InFlight:
    """Calls that were begun and not waited for: they read and write at times that nobody knows."""

    def __init__(self, offsets: Mapping[int, int]) -> None:
        self._offsets = offsets
        #: {block that is written, or that the others' parts come into: the call that began it, what it uses}.
        self._open: dict[int, tuple[Instruction, list[_Access]]] = {}

    def follow(self, instruction: Instruction) -> None:
        """Note the next instruction: a copy or a sum begins or ends, or it runs while some are under way.

        PlanError where it uses what is being written or overwrites what is being read, and for an end without a
        beginning.
        """
        kind = kind_of(instruction)
        if instruction.transfer is None and kind not in (BEGIN, WAIT):
            if self._open:
                self._check(instruction, list(_accesses(0, instruction, self._offsets)))
            return
        if instruction.transfer is not None:
            key, used = instruction.writes[0].block, list(_accesses(1, instruction, self._offsets))
        else:
            values, came = instruction.operands[:2]
            if values is None or came is None:
                raise PlanError(
                    f"{_flight_label(instruction)}: wanted values and where those of others come, "
                    f"received {instruction}"
                )
            key, used = came.block, list(_of_operands(1, instruction, (values, came), True, self._offsets))
        if instruction.transfer is Transfer.BEGIN or kind == BEGIN:
            self._check(instruction, [one._replace(lane=0) for one in used])
            self._open[key] = instruction, used
            return
        begun = self._open.pop(key, None)
        if begun is None or begun[0].operands != instruction.operands:
            raise PlanError(
                f"{_flight_label(instruction)}: wanted the end of one that was begun, received {instruction}"
            )

    def check_ended(self) -> None:
        """PlanError where something was never waited for."""
        for begun, _ in self._open.values():
            raise PlanError(f"{_flight_label(begun)}: wanted it waited for before the step ends")

    def _check(self, instruction: Instruction, used: list[_Access]) -> None:
        for begun, taken in self._open.values():
            if _race([*taken, *used]) is not None:
                raise PlanError(
                    f"{called(instruction)}: wanted the bytes left alone that {_flight_label(begun)} reads or writes "
                    "until it is waited for"
                )


def _flight_label(instruction: Instruction) -> str:
    return f"{'sum' if kind_of(instruction) else 'copy'} {instruction.number}"


def _race(accesses: Iterable[_Access]) -> tuple[_Access, _Access] | None:
    """Two accesses of different lanes to one byte, one of which writes it; None where there are none.

    They are gone through by address, with those at hand that reach so far, so that the time goes with how many there
    are as long as few of them read the same bytes.
    """
    near: list[_Access] = []
    for access in sorted(accesses, key=lambda one: one[:3]):
        near = [one for one in near if one.span == access.span and one.stop > access.start]
        for other in near:
            if other.lane != access.lane and (other.writes or access.writes) and cut(other.box, access.box)[0]:
                return other, access
        near.append(access)
    return None


def _accesses(
    lane: int, instruction: Instruction, offsets: Mapping[int, int], scratch: Mapping[int, int] | None = None
) -> Iterator[_Access]:
    """All of an instruction. scratch: where it is; None: what others do with it is no matter."""
    if scratch is not None and instruction.scratch_bytes:
        start = scratch[instruction.number]
        box = run(start, instruction.scratch_bytes)
        yield _Access(-1, start, start + instruction.scratch_bytes, lane, True, box, instruction)
    for operands, writes in ((instruction.reads, False), (instruction.writes, True)):
        yield from _of_operands(lane, instruction, operands, writes, offsets)


def _of_operands(
    lane: int, instruction: Instruction, operands: Sequence[Operand], writes: bool, offsets: Mapping[int, int]
) -> Iterator[_Access]:
    for operand in operands:
        span, base = span_of(operand, offsets)
        for box in boxes(operand, base):
            yield _Access(span, box.at[0], box.end, lane, writes, box, instruction)
