"""Messages of the proof of rewriting where a call does something else: the tensors, their layers, the operations."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.calls import Call, Calls, Values
from singa_lite.compiler.proof.check_calls import called
from singa_lite.compiler.proof.read_errors import BlockNames
from singa_lite.compiler.proof.values import MixedRegion, Piece, Start, Sum, Written, form_of
from singa_lite.kernels.interface import SIGNATURES


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

    def left(self, block: int, wanted: Sequence[Written], found: Sequence[Written]) -> PlanError:
        """Of a block that is held behind the step."""
        return PlanError(
            f"rewriting, held block {block}{self._of(block)}: wanted it left with {self._held(wanted, block)}, "
            f"received {self._held(found, block)}"
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

    def _held(self, written: Sequence[Written], block: int) -> str:
        if not written:
            return f"what it held before the step{self._of(block)}"
        return "; ".join(dict.fromkeys(self.value(one.value) for one in written[-3:]))

    def value(self, value: int | None) -> str:
        """A value, by who made it."""
        if value is None:
            return "none"
        if value in self._calls.numbers.makers:
            instruction, operand = self._calls.numbers.makers[value]
            name = next(n for n, o in instruction.by_name.items() if o is operand)
            return f"what {called(instruction)} wrote as {name!r}{self._of(operand.block)}"
        what = self._calls.numbers.keys[value]
        if isinstance(what, Start):
            before = f"what block {what.block}{self._of(what.block)} held before the step"
            return before if what.block >= 0 else "bytes that no operation wrote"
        if isinstance(what, Piece):
            return f"{what.start} to {what.stop} of axis {what.axis} of {self.value(what.value)}"
        if isinstance(what, Sum):
            return f"the sum over rows {what.start} to {what.stop} for {self.value(what.value)}"
        if isinstance(what, MixedRegion):
            return "parts of " + ", ".join(dict.fromkeys(self.value(one) for _, one in what.written[:3]))
        return "a value that no operation of the record makes"

    def _of(self, block: int) -> str:
        return f" (tensor {self._names[block]!r})" if self._names.get(block) else ""
