"""The proof that rewriting changes no value: each call of the rewritten program does what some of the record do.

Both programs are gone through as values (`values.py`). A call of the rewritten one must do the very same with the very
same values as one of the record, or as one that the laws (`laws.py`) say makes the same as some of the record, or as
what the user's rules put there, or a piece of such a call; and each held block must be left with the values that the
record leaves it with. So it is the user's own record that a plan is held against, all that nobody uses included; that
laws and rules are true is what runs prove, by test and when a rule is made. Of the passes it knows nothing but where
they say that the user's rules were applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from singa_lite.compiler.ir.collectives import as_values
from singa_lite.compiler.ir.footprint import moves_bytes
from singa_lite.compiler.ir.matching import Application
from singa_lite.compiler.ir.operation import Operand
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.target import Narrow
from singa_lite.compiler.proof.added_calls import add_applied, obey
from singa_lite.compiler.proof.by_pieces import Pieces, join
from singa_lite.compiler.proof.calls import Calls, Maker, Values, values_read, write
from singa_lite.compiler.proof.errors import NO_NAMES, BlockNames, ValueNames
from singa_lite.compiler.proof.values import Memory, Numbers


def check_rewrites(recorded: Program, rewritten: Program, names: BlockNames = NO_NAMES) -> None:
    """PlanError unless the rewritten program makes in each held block what the record makes there.

    names: of blocks, for the message. The time goes with the number of instructions.
    """
    if recorded.instructions is rewritten.instructions:
        return
    recorded, rewritten = as_values(recorded), as_values(rewritten)
    narrow = recorded.target.narrow
    recorded, rewritten = _widened(recorded, narrow), _widened(rewritten, narrow)
    calls, wanted = _known(recorded, rewritten.applied)
    obey(calls, {instruction.kernel for instruction in rewritten.instructions})
    _check(calls, rewritten, wanted, ValueNames(recorded, calls, names))


def _known(recorded: Program, applied: Sequence[Application]) -> tuple[Calls, Memory]:
    """The calls of the record and of the user's rules; and what the record leaves in memory.

    Where a rule says that two values of the record are one, as relu(relu(x)) and relu(x) are, it is gone through again
    with one number for both, until nothing more follows.
    """
    same: dict[Maker, Maker] = {}
    while True:
        calls = Calls(Numbers(), same)
        wanted = Memory(calls.numbers, recorded.sizes)
        for instruction in recorded.instructions:
            calls.record(wanted, instruction)
        add_applied(calls, applied)
        found = calls.same()
        if found == same:
            return calls, wanted
        same = found


def _check(calls: Calls, rewritten: Program, wanted: Memory, telling: ValueNames) -> None:
    memory = Memory(calls.numbers, rewritten.sizes)
    pieces = Pieces(calls)
    for instruction in rewritten.instructions:
        reads = values_read(memory, instruction)
        if moves_bytes(instruction):
            made: Values = (None, next(value for value in reads if value is not None))
        else:
            known = calls.find(instruction, reads)
            found = pieces.find(instruction, reads) if known is None else known.writes
            if found is None:
                raise telling.unknown(instruction, reads)
            made = found
        write(memory, instruction, made)
        for operand in instruction.writes:
            join(memory, operand)
    held = {block for each in (wanted, memory) for block in each.blocks if block not in each.sizes}
    for block in sorted(held):
        if block in memory.sizes or wanted.left(block) != memory.left(block):
            raise telling.retained_values_error(block, *(each.blocks.get(block, []) for each in (wanted, memory)))


def _widened(program: Program, narrow: Narrow | None) -> Program:
    """The program as if all were stored in the wide dtype: what is narrow, and where, changes no call."""
    if narrow is None:
        return program
    times, sizes = narrow.wide.itemsize // narrow.dtype.itemsize, dict(program.sizes)
    made = []
    for instruction in program.instructions:
        operands = tuple(_wide(operand, narrow, times) for operand in instruction.operands)
        for before, after in zip(instruction.operands, operands, strict=True):
            if before is not None and after is not before and before.block in sizes:
                sizes[before.block] = times * program.sizes[before.block]
        made.append(replace(instruction, operands=operands))
    return replace(program, instructions=tuple(made), sizes=sizes)


def _wide(operand: Operand | None, narrow: Narrow, times: int) -> Operand | None:
    if operand is None or operand.dtype != narrow.dtype:
        return operand
    strides = tuple(times * stride for stride in operand.strides)
    return Operand(operand.block, operand.shape, narrow.wide, strides, times * operand.offset)
