"""Calls: the operations of a record over values, and what is known to be the same as some of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from math import copysign, isnan, prod
from types import MappingProxyType
from typing import NamedTuple

from singa_lite.compiler.ir.footprint import moves_bytes
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.proof.values import Form, Memory, Numbers, form_of
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import Settings

#: Of each operand: the value that it has, None where it has none, or is not read (written).
Values = tuple[int | None, ...]


#: The number of an instruction, and the index of an operand that it writes.
Maker = tuple[int, int]
NOTHING: Mapping[Maker, Maker] = MappingProxyType({})


class Call(NamedTuple):
    """An operation over values. instruction: for its kernel, settings and forms."""

    instruction: Instruction
    reads: Values
    writes: Values


class Calls:
    """Calls by what they read, by kernel, and by the values that they read or make."""

    def __init__(self, numbers: Numbers, same: Mapping[Maker, Maker] = NOTHING) -> None:
        self.numbers = numbers
        #: Pairs of values that were found to be one.
        self.equal: list[tuple[int, int]] = []
        self._same, self._of_maker = same, dict[Maker, int]()
        self.by_kernel: dict[str, list[Call]] = defaultdict(list)
        self.by_number: dict[int, Call] = {}
        self._users: dict[int, list[Call]] = defaultdict(list)
        self._table: dict[Hashable, Call] = {}

    def add(self, call: Call) -> None:
        """Note a call; the first one of several that read the same stands for all."""
        first = self._table.setdefault(_key(call.instruction, call.reads), call)
        pairs = zip(first.writes, call.writes, strict=True)
        self.equal += [(a, b) for a, b in pairs if a is not None and b is not None and a != b]
        self.by_kernel[call.instruction.kernel].append(call)
        for value in {value for value in (*call.reads, *call.writes) if value is not None}:
            self._users[value].append(call)

    def described(self, call: Call) -> tuple[str, Values]:
        """The kernel of a call, and the values that it reads and makes (`matching.CallTable`)."""
        return call.instruction.kernel, (*call.reads, *call.writes)

    def users(self, value: int) -> list[Call]:
        """The calls that read or make a value."""
        return self._users[value]

    def find(self, instruction: Instruction, reads: Values) -> Call | None:
        """The call that does the very same with the very same values, if there is one."""
        return self._table.get(_key(instruction, reads))

    def record(self, memory: Memory, instruction: Instruction) -> None:
        """Note an instruction of a program as memory is when it comes; what it makes lies there behind it."""
        reads = values_read(memory, instruction)
        if moves_bytes(instruction):
            memory.write(instruction.writes[0], next(value for value in reads if value is not None))
            return
        known = self.find(instruction, reads)
        call = Call(instruction, reads, self._made(instruction) if known is None else known.writes)
        self.add(call)
        self.by_number[instruction.number] = call
        write(memory, instruction, call.writes)

    def _made(self, instruction: Instruction) -> Values:
        """New values for what an instruction writes."""
        made: list[int | None] = []
        for operand, role in zip(instruction.operands, SIGNATURES[instruction.kernel].roles, strict=True):
            made.append(None if operand is None or role == "Read" else self._value_of(instruction, operand))
        return tuple(made)

    def _value_of(self, instruction: Instruction, operand: Operand) -> int:
        """The value that an instruction gives an operand: a new one, unless it is known to be that of another."""
        maker = instruction.number, instruction.operands.index(operand)
        first = self._same.get(maker, maker)
        if first not in self._of_maker:
            self._of_maker[first] = self.numbers.new()
            self.numbers.makers[self._of_maker[first]] = instruction, operand
        return self._of_maker[first]

    def same(self) -> dict[Maker, Maker]:
        """{maker of a value: the first one of a value that was found to be the same}, with those known before."""
        makers, same = {value: maker for maker, value in self._of_maker.items()}, dict(self._same)
        for pair in self.equal:
            found = sorted(makers[value] for value in pair if value in makers)
            if len(found) == 2:  # else one of them is no value of the record
                first, second = (same.get(maker, maker) for maker in found)
                same = {maker: first if one == second else one for maker, one in same.items()} | {second: first}
        return same


def values_read(memory: Memory, instruction: Instruction) -> Values:
    """Of each operand the value that the instruction needs."""
    pairs = zip(instruction.operands, SIGNATURES[instruction.kernel].roles, strict=True)
    return tuple(None if operand is None or role == "Write" else memory.read(operand) for operand, role in pairs)


def write(memory: Memory, instruction: Instruction, values: Values) -> None:
    """What the instruction makes lies in memory."""
    for operand, value in zip(instruction.operands, values, strict=True):
        if operand is not None and value is not None:
            memory.write(operand, value)


def _key(instruction: Instruction, reads: Values) -> Hashable:
    """What decides about the results: what is read and how it lies, and how what is written does. Of a call that may be
    done once alone its number, too.
    """
    signature = SIGNATURES[instruction.kernel]
    forms = tuple(
        None if operand is None else _lying(form_of(operand)) if value is None else form_of(operand)
        for operand, value in zip(instruction.operands, reads, strict=True)
    )
    number = instruction.number if signature.facts.once else -1
    return instruction.kernel, frozen(instruction.settings), reads, forms, number


def frozen(settings: Settings) -> Hashable:
    """Settings as a key; one that has no hash is itself alone."""
    return tuple((name, exact(value) if _has_hash(value) else id(value)) for name, value in sorted(settings.items()))


def exact(value: object) -> object:
    """What is equal where settings do the same: zeros of two signs do not, and NaN does what NaN does."""
    if isinstance(value, float) and (isnan(value) or (value == 0 and copysign(1, value) < 0)):
        return str(float(value))
    return value


def _has_hash(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def same_elements(one: Form, other: Form) -> bool:
    """Whether they are the same elements in the same order: one form, or two shapes that both lie in C order."""
    return one == other or _lying(one) == _lying(other)


def _lying(form: Form) -> Hashable:
    """The elements in their order: of all shapes in C order it is the same."""
    is_plain = form.order == tuple(axis for axis, extent in enumerate(form.shape) if extent != 1)
    return (form.dtype, prod(form.shape)) if is_plain else form
