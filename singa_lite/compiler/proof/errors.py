"""Messages of the proofs, where a read gets other bytes or a call does something else: tensors, layers, operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from singa_lite.compiler.ir.footprint import Piece as BytePiece
from singa_lite.compiler.ir.operation import Instruction, called
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.calls import Call, Calls, Values
from singa_lite.compiler.proof.values import MixedRegion, Piece, Start, Sum, Written, form_of
from singa_lite.kernels.interface import SIGNATURES

#: {number of a block: its name}, as far as blocks have names.
BlockNames = Mapping[int, str]
NO_NAMES: BlockNames = MappingProxyType({})
READ, WRITTEN = ("Read", "Update"), ("Write", "Update")
NOBODY = "bytes that no operation wrote"


def request_labels(program: Program, names: BlockNames = NO_NAMES) -> Callable[[str], str]:
    """What is to be said of the id of a request of the program: the tensor, and the operation that first writes it."""

    def label(key: str) -> str:
        number = int(key[1:])
        if key[0] == "s":
            owner = next((i for i in program.instructions if i.number == number), None)
            return f"{key!r} is scratch" if owner is None else f"{key!r} is scratch of {called(owner)}"
        writers = (i for i in program.instructions if any(o.block == number for o in i.writes))
        writer = next(writers, None)
        written = "" if writer is None else f", first written by {called(writer)}"
        return f"{key!r} is block {number}{_label(number, names)}{written}"

    return label


class ByteErrors:
    """Errors of reads that get other bytes. originals: the rewritten program's, by number; names: of blocks."""

    def __init__(self, originals: Mapping[int, Instruction], names: BlockNames) -> None:
        self._originals, self._names = originals, names

    def wrong_read(
        self, instruction: Instruction, index: int, expected: Sequence[BytePiece], received: Sequence[BytePiece]
    ) -> PlanError:
        """Of a read of an instruction. index: among its reads; expected, received: who wrote the bytes."""
        argument = f"{_argument(instruction, index, READ)!r}{_label(instruction.reads[index].block, self._names)}"
        wanted, found = self._first_difference(expected, received)
        return PlanError(f"{called(instruction)}, read {index}, {argument}: wanted {wanted}, received {found}")

    def held_block(self, block: int, expected: Sequence[BytePiece], received: Sequence[BytePiece]) -> PlanError:
        """Of a block that is held behind the step."""
        wanted, found = self._first_difference(expected, received)
        label = f"{block}{_label(block, self._names)}"
        return PlanError(f"held block {label}: wanted it left with {wanted}, received {found}")

    def _first_difference(self, expected: Sequence[BytePiece], received: Sequence[BytePiece]) -> tuple[str, str]:
        """A piece that was wanted and is not there, and one that is there in its place, if there are any."""
        missing = next((piece for piece in expected if piece not in received), None)
        foreign = [piece for piece in received if piece not in expected]
        other = next((piece for piece in foreign if missing is None or piece[0] != missing[0]), None)
        return self._written(missing), self._written(other or next(iter(foreign), None))

    def _written(self, piece: BytePiece | None) -> str:
        """By whom the bytes were written. Numbers of writers are those of `read_from`."""
        if piece is None:
            return "nothing else there"
        number = piece[0]
        if number < -1:
            return _value_before(-2 - number, self._names)
        if number < 0:
            return NOBODY
        writer = self._originals.get(number // 8)
        if writer is None:
            return f"bytes written as {number}"
        label = _label(writer.writes[number % 8].block, self._names)
        return f"what {called(writer)} wrote as {_argument(writer, number % 8, WRITTEN)!r}{label}"


def _argument(instruction: Instruction, index: int, roles: tuple[str, str]) -> str:
    """The interface's name of an operand. roles: of those that are counted."""
    signature = SIGNATURES[instruction.kernel]
    named = zip(signature.tensors, signature.roles, instruction.operands, strict=True)
    return [name for name, role, operand in named if operand is not None and role in roles][index]


def _value_before(block: int, names: BlockNames) -> str:
    return f"what block {block}{_label(block, names)} held before the step"


def _label(block: int, names: BlockNames) -> str:
    return f" (tensor {names[block]!r})" if names.get(block) else ""


class ValueNames:
    """Names values. recorded: the user's record; names: of its blocks."""

    def __init__(self, recorded: Program, calls: Calls, names: BlockNames) -> None:
        self._calls, self._names = calls, names
        self._numbers = {instruction.number: instruction for instruction in recorded.instructions}

    def unknown(self, instruction: Instruction, reads: Values) -> PlanError:
        """Of a call that no operation of the record stands for."""
        recorded = self._calls.by_number.get(instruction.number)
        if recorded is not None and recorded.instruction.kernel == instruction.kernel:
            return PlanError(f"rewriting, {called(instruction)}: {self._difference(recorded, instruction, reads)}")
        return PlanError(
            f"rewriting, {called(instruction)}: wanted a call that operations of the record stand for, received "
            f"{instruction.kernel} of {self._operands(instruction, reads)}, settings {dict(instruction.settings)}"
        )

    def retained_values_error(self, block: int, wanted: Sequence[Written], found: Sequence[Written]) -> PlanError:
        """Of a block that is held behind the step."""
        return PlanError(
            f"rewriting, held block {block}{_label(block, self._names)}: wanted it left with "
            f"{self._values_in(wanted, block)}, received {self._values_in(found, block)}"
        )

    def _difference(self, recorded: Call, instruction: Instruction, reads: Values) -> str:
        """What of a recorded call is another thing."""
        if recorded.instruction.settings != instruction.settings:
            return f"wanted settings {dict(recorded.instruction.settings)}, received {dict(instruction.settings)}"
        for name, before, after, one, other in zip(
            SIGNATURES[instruction.kernel].tensors,
            recorded.reads,
            reads,
            recorded.instruction.operands,
            instruction.operands,
            strict=True,
        ):
            if before != after:
                return f"{name!r}: wanted {self.value(before)}, received {self.value(after)}"
            if one is not None and other is not None and form_of(one) != form_of(other):
                return f"{name!r}: wanted {one.shape} {one.dtype} as recorded, received {other.shape} {other.dtype}"
        return f"wanted the recorded call, received one of {self._operands(instruction, reads)}"

    def _operands(self, instruction: Instruction, reads: Values) -> str:
        pairs = zip(SIGNATURES[instruction.kernel].tensors, reads, strict=True)
        return ", ".join(f"{name} = {self.value(value)}" for name, value in pairs if value is not None)

    def _values_in(self, written: Sequence[Written], block: int) -> str:
        if not written:
            return f"what it held before the step{_label(block, self._names)}"
        return "; ".join(dict.fromkeys(self.value(one.value) for one in written[-3:]))

    def value(self, value: int | None) -> str:
        """A value, by who made it."""
        if value is None:
            return "none"
        if value in self._calls.numbers.makers:
            instruction, operand = self._calls.numbers.makers[value]
            name = next(n for n, o in instruction.by_name.items() if o is operand)
            return f"what {called(instruction)} wrote as {name!r}{_label(operand.block, self._names)}"
        what = self._calls.numbers.keys[value]
        if isinstance(what, Start):
            return _value_before(what.block, self._names) if what.block >= 0 else NOBODY
        if isinstance(what, Piece):
            return f"{what.start} to {what.stop} of axis {what.axis} of {self.value(what.value)}"
        if isinstance(what, Sum):
            return f"the sum over rows {what.start} to {what.stop} for {self.value(what.value)}"
        if isinstance(what, MixedRegion):
            return "parts of " + ", ".join(dict.fromkeys(self.value(one) for _, one in what.written[:3]))
        return "a value that no operation of the record makes"
