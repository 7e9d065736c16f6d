"""The proof that lanes of a wave may run at the same time: none writes bytes that another one reads or writes.

Then whatever order their instructions take, and however they overlap, each read gets what it gets where one lane runs
after the other; and that this is right is what `read_from.py` proves of the order as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from singa_lite.compiler.ir.boxes import Box, cut
from singa_lite.compiler.ir.footprint import boxes, run, span_of
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.placement.problem import PlanError


class _Access(NamedTuple):
    """An access to bytes by an instruction. start, stop: around all of them; span: which memory they lie in, see
    `span_of`.
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
    instruction: offset of its scratch}. A wave is gone through by address, with those at hand that reach so far, so
    that the time goes with the number of operands as long as few of them read the same bytes.
    """
    if not program.waves:
        return
    if sum(map(sum, program.waves)) != len(program.instructions) or not all(map(all, program.waves)):
        raise PlanError(
            f"waves: wanted lanes of {len(program.instructions)} instructions in all, received {program.waves}"
        )
    step = 0
    for wave in program.waves:
        lanes = []
        for count in wave:
            lanes.append(program.instructions[step : step + count])
            step += count
        if len(lanes) > 1:
            _check_wave(lanes, offsets, scratch)


def _check_wave(lanes: Sequence[Sequence[Instruction]], offsets: Mapping[int, int], scratch: Mapping[int, int]) -> None:
    accesses = [
        one for lane, instructions in enumerate(lanes) for one in _accesses(lane, instructions, offsets, scratch)
    ]
    near: list[_Access] = []
    for access in sorted(accesses, key=lambda one: one[:3]):
        near = [one for one in near if one.span == access.span and one.stop > access.start]
        for other in near:
            if other.lane != access.lane and (other.writes or access.writes) and cut(other.box, access.box)[0]:
                raise PlanError(
                    f"waves: wanted {_called(other)} and {_called(access)} of two lanes apart, received both at bytes "
                    f"of {'the arena' if access.span == -1 else f'held block {access.span}'} around "
                    f"{access.start} to {min(access.stop, other.stop)}"
                )
        near.append(access)


def _accesses(
    lane: int, instructions: Sequence[Instruction], offsets: Mapping[int, int], scratch: Mapping[int, int]
) -> Iterator[_Access]:
    for instruction in instructions:
        if instruction.scratch_bytes:
            start = scratch[instruction.number]
            stop = start + instruction.scratch_bytes
            yield _Access(-1, start, stop, lane, True, run(start, stop - start), instruction)
        for operands, writes in ((instruction.reads, False), (instruction.writes, True)):
            for operand in operands:
                span, base = span_of(operand, offsets)
                for box in boxes(operand, base):
                    yield _Access(span, box.at[0], box.end, lane, writes, box, instruction)


def _called(access: _Access) -> str:
    instruction = access.instruction
    return f"instruction {instruction.number} ({instruction.kernel}, layer {instruction.layer!r})"
