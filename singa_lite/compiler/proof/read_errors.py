"""Messages of the proof of a plan where a read gets other bytes: the tensor, its layer, and both operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from singa_lite.compiler.ir.contents import Piece
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.check_calls import called
from singa_lite.kernels.interface import SIGNATURES

#: {number of a block: its name}, as far as blocks have names.
BlockNames = Mapping[int, str]
NO_NAMES: BlockNames = MappingProxyType({})
READ, WRITTEN = ("Read", "Update"), ("Write", "Update")


def request_labels(program: Program, names: BlockNames = NO_NAMES) -> Callable[[str], str]:
    """What is to be said of the id of a request of the program: the tensor, and the operation that first writes it."""

    def told(key: str) -> str:
        number = int(key[1:])
        if key[0] == "s":
            owner = next((i for i in program.instructions if i.number == number), None)
            return f"{key!r} is scratch" if owner is None else f"{key!r} is scratch of {called(owner)}"
        writers = (i for i in program.instructions if any(o.block == number for o in i.writes))
        writer = next(writers, None)
        written = "" if writer is None else f", first written by {called(writer)}"
        return f"{key!r} is block {number}{_label(number, names)}{written}"

    return told


def wrong_read(
    instruction: Instruction,
    index: int,
    expected: Sequence[Piece],
    received: Sequence[Piece],
    originals: Mapping[int, Instruction],
    names: BlockNames,
) -> PlanError:
    """Of a read of an instruction. index: among its reads; expected, received: who wrote the bytes."""
    operand = instruction.reads[index]
    wanted, found = _first_difference(expected, received)
    return PlanError(
        f"{called(instruction)}, read {index}, {_argument(instruction, index, READ)!r}{_label(operand.block, names)}: "
        f"wanted "
        f"{_written(wanted, originals, names)}, received {_written(found, originals, names)}"
    )


def held_block_error(
    block: int,
    expected: Sequence[Piece],
    received: Sequence[Piece],
    originals: Mapping[int, Instruction],
    names: BlockNames,
) -> PlanError:
    """Of a block that is held behind the step."""
    wanted, found = _first_difference(expected, received)
    return PlanError(
        f"held block {block}{_label(block, names)}: wanted it left with {_written(wanted, originals, names)}, received "
        f"{_written(found, originals, names)}"
    )


def _first_difference(expected: Sequence[Piece], received: Sequence[Piece]) -> tuple[Piece | None, Piece | None]:
    """A piece that was wanted and is not there, and one that is there in its place, if there are any."""
    missing = next((piece for piece in expected if piece not in received), None)
    foreign = [piece for piece in received if piece not in expected]
    other = next((piece for piece in foreign if missing is None or piece[0] != missing[0]), None)
    return missing, other or next(iter(foreign), None)


def _written(piece: Piece | None, originals: Mapping[int, Instruction], names: BlockNames) -> str:
    """By whom the bytes were written. Numbers of writers are those of `read_from`."""
    if piece is None:
        return "nothing else there"
    number = piece[0]
    if number < -1:
        block = -2 - number
        return f"what block {block}{_label(block, names)} held before the step"
    if number < 0:
        return "bytes that no operation wrote"
    writer = originals.get(number // 8)
    if writer is None:
        return f"bytes written as {number}"
    operand = writer.writes[number % 8]
    return f"what {called(writer)} wrote as {_argument(writer, number % 8, WRITTEN)!r}{_label(operand.block, names)}"


def _argument(instruction: Instruction, index: int, roles: tuple[str, str]) -> str:
    """The interface's name of an operand. roles: of those that are counted."""
    signature = SIGNATURES[instruction.kernel]
    named = zip(signature.tensors, signature.roles, instruction.operands, strict=True)
    return [name for name, role, operand in named if operand is not None and role in roles][index]


def _label(block: int, names: BlockNames) -> str:
    return f" (tensor {names[block]!r})" if names.get(block) else ""
