"""Search for patterns of calls, of laws and of users' rules alike; and the form of users' rules.

Calls are found by their kernels, and by what they have in common. Passes search a program, whose calls share blocks
(`uses.py`), the proof a record, whose calls share values (`proof/calls.py`). The search only proposes: whoever asks
compares forms and settings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from singa_lite.compiler.ir.operation import Instruction, Operand

Call = TypeVar("Call")
#: A name of a block or of a value in a pattern.
Word = int | str


class CallPattern(NamedTuple):
    """A call of a pattern. kernels: {kernel that it may be of: what the variable stands for then}; variable: its name,
    "" where there is none; words: one for each block or value, None for none. open: whether a word may stand for none
    as well.
    """

    kernels: Mapping[str, str]
    variable: str
    words: tuple[Word | None, ...]
    open: bool

    @property
    def known(self) -> set[Word]:
        """The words that stand for something."""
        return {word for word in self.words if word is not None}


class CallTable(Protocol[Call]):
    """Calls to search, each with its kernel and with what its words may stand for: blocks, or values, by number."""

    def described(self, call: Call) -> tuple[str, Sequence[int | None]]:
        """The kernel of a call, and its blocks or values in the order of a pattern's words."""

    def users(self, number: int) -> Sequence[Call]:
        """The calls that use a block or value."""


class _Bound(NamedTuple):
    """What words and variables stand for."""

    numbers: dict[Word, int | None]
    variables: dict[str, str]


def matches(pattern: Sequence[CallPattern], table: CallTable[Call], first: Call) -> Iterator[tuple[Call, ...]]:
    """Yields the calls that stand for the pattern's, in its order, where `first` stands for the first of them."""
    order = connected([call.known for call in pattern])
    for found in _extended(pattern, order, table, [], _Bound({}, {}), [first]):
        yield tuple(call for _, call in sorted(zip(order, found, strict=True), key=lambda pair: pair[0]))


def _extended(
    pattern: Sequence[CallPattern],
    order: Sequence[int],
    table: CallTable[Call],
    found: list[Call],
    bound: _Bound,
    candidates: Sequence[Call],
) -> Iterator[list[Call]]:
    """Yields the calls of whole matches that go on from those found, with one of the candidates next."""
    wanted = pattern[order[len(found)]]
    for call in candidates:
        joined = _joined(wanted, *table.described(call), bound)
        if joined is None:
            continue
        if len(found) + 1 == len(order):
            yield [*found, call]
            continue
        known = (joined.numbers.get(word) for word in pattern[order[len(found) + 1]].known)
        fewest = min((table.users(number) for number in known if number is not None), key=len, default=())
        yield from _extended(pattern, order, table, [*found, call], joined, fewest)


def _joined(wanted: CallPattern, kernel: str, numbers: Sequence[int | None], bound: _Bound) -> _Bound | None:
    """What is known with this call; None where it does not fit."""
    meant = wanted.kernels.get(kernel)
    if meant is None or len(wanted.words) != len(numbers):
        return None
    if wanted.variable and bound.variables.get(wanted.variable, meant) != meant:
        return None
    found = dict(bound.numbers)
    for word, number in zip(wanted.words, numbers, strict=True):
        if word is None or (number is None and not wanted.open):
            if word is not None or number is not None:
                return None
        elif found.setdefault(word, number) != number:
            return None
    return _Bound(found, {**bound.variables, wanted.variable: meant} if wanted.variable else bound.variables)


def connected(calls: Sequence[Collection[Word]]) -> list[int]:
    """Indices in an order in which each call shares a word with one before it; fewer where some do not.

    calls: the words of each.
    """
    order, left = [0], list(range(1, len(calls)))
    known = set(calls[0])
    while True:
        following = next((index for index in left if not known.isdisjoint(calls[index])), None)
        if following is None:
            return order
        left.remove(following)
        order.append(following)
        known.update(calls[following])


class Side(NamedTuple):
    """A side of a rule: a function as it was recorded. inputs, outputs: its tensors; all other blocks are its own."""

    instructions: tuple[Instruction, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    @property
    def held_blocks(self) -> frozenset[int]:
        """Blocks of inputs and outputs."""
        return frozenset(operand.block for operand in (*self.inputs, *self.outputs))


class Sides(NamedTuple):
    """Both sides for one form of the inputs. They name inputs and outputs in the same order."""

    pattern: Side
    replacement: Side


class RecordRule(Protocol):
    """A rule as it is proved for a device."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def examples(self) -> Sequence[Sides]:
        """The rule's variants, each for some form: a place in a record is looked for by their kernels."""

    def sides(self, variant: int, inputs: Sequence[Operand]) -> Sides | None:
        """Both sides of a variant for inputs of these forms; None for forms that the rule is not stated for."""


class Application(NamedTuple):
    """One application of a rule: numbers of the instructions that its pattern matched and of those that replaced them,
    in the order of both sides.
    """

    name: str
    sides: Sides
    matched: tuple[int, ...]
    made: tuple[int, ...]
