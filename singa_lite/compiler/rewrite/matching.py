"""Matching: where a program has the operations of a pattern, hanging together as they do there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.sides import Side
from singa_lite.compiler.ir.uses import Uses

#: What stands for a block in a pattern.
Word = int | str


class CallPattern(NamedTuple):
    """A call of a pattern. kernels: {kernel that it may be of: what the variable stands for then}; variable: its name,
    "" where there is none; words: one for each tensor, the same for the same block; None for no tensor. open: whether
    a word may stand for no tensor as well.
    """

    kernels: Mapping[str, str]
    variable: str
    words: tuple[Word | None, ...]
    open: bool

    @property
    def known(self) -> set[Word]:
        """The words that stand for tensors."""
        return {word for word in self.words if word is not None}


class Match(NamedTuple):
    """The bindings of words and variables in a match."""

    blocks: dict[Word, int | None]
    variables: dict[str, str]


class Matcher:
    """Finds a pattern in a program by kernels and blocks alone: whoever asks compares forms and settings."""

    def __init__(self, instructions: Sequence[Instruction], uses: Uses) -> None:
        self.instructions, self.uses = instructions, uses

    def places(self, pattern: Sequence[CallPattern]) -> Iterator[tuple[int, ...]]:
        """The steps that stand for the pattern's calls, in its order: one place for each step of the first."""
        order = connected([call.known for call in pattern])
        for step in sorted(s for kernel in pattern[order[0]].kernels for s in self.uses.kernels.get(kernel, ())):
            found = self._grown(pattern, order, {}, Match({}, {}), [step])
            if found is not None:
                yield tuple(found[index] for index in range(len(order)))

    def _grown(
        self,
        pattern: Sequence[CallPattern],
        order: Sequence[int],
        steps: dict[int, int],
        bound: Match,
        tries: Sequence[int],
    ) -> dict[int, int] | None:
        """The steps of all calls. order: in which they are looked for; steps, bound: what has been found."""
        index = order[len(steps)]
        for step in tries:
            found = _joined(pattern[index], self.instructions[step], bound)
            if found is None or step in steps.values():
                continue
            grown = {**steps, index: step}
            if len(grown) == len(order):
                return grown
            further = self._beside(pattern[order[len(grown)]], found)
            whole = self._grown(pattern, order, grown, found, further)
            if whole is not None:
                return whole
        return None

    def _beside(self, wanted: CallPattern, bound: Match) -> list[int]:
        """The steps that use a block as the wanted call does: of those known the one that fewest use."""
        blocks = (bound.blocks.get(word) for word in wanted.known)
        return min((self.uses.steps[block] for block in blocks if block is not None), key=len, default=[])


def _joined(wanted: CallPattern, found: Instruction, bound: Match) -> Match | None:
    """What is known with this instruction; None where it does not fit."""
    meant = wanted.kernels.get(found.kernel)
    if meant is None or len(wanted.words) != len(found.operands):
        return None
    if wanted.variable and bound.variables.get(wanted.variable, meant) != meant:
        return None
    blocks = dict(bound.blocks)
    for word, operand in zip(wanted.words, found.operands, strict=True):
        block = None if operand is None else operand.block
        if word is None or (block is None and not wanted.open):
            if word is not None or block is not None:
                return None
        elif blocks.setdefault(word, block) != block:
            return None
    return Match(blocks, {**bound.variables, wanted.variable: meant} if wanted.variable else bound.variables)


def pattern_of(side: Side) -> list[CallPattern]:
    """The pattern of a rule's side: its very kernels, over its blocks."""
    return [
        CallPattern({i.kernel: ""}, "", tuple(None if o is None else o.block for o in i.operands), open=False)
        for i in side.instructions
    ]


def connected(calls: Sequence[Collection[Word]]) -> list[int]:
    """Indices in an order in which each call shares a block with one before it; fewer where some do not.

    calls: the blocks of each.
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


def bases(pattern: Side, found: Sequence[Instruction]) -> dict[int, tuple[int, int]] | None:
    """Returns {block of the pattern: (block, where the pattern's block begins in it)}, or None if the instructions do
    not match. They match if kernel, settings, shapes, dtypes and strides are equal.
    """
    places: dict[int, tuple[int, int]] = {}
    for mine, theirs in zip(pattern.instructions, found, strict=True):
        if mine.kernel != theirs.kernel or mine.settings != theirs.settings:
            return None
        for one, other in zip(mine.operands, theirs.operands, strict=True):
            if one is None or other is None:
                if one is not other:
                    return None
                continue
            place = other.block, other.offset - one.offset
            if one[1:4] != other[1:4] or places.setdefault(one.block, place) != place:
                return None
    return places


def operand_for(pattern: Side, place: Sequence[Instruction], block: int, like: Operand) -> Operand | None:
    """What stands at a place for the pattern's tensor `like` over a block; None where no instruction takes it so."""
    for mine, theirs in zip(pattern.instructions, place, strict=True):
        for one, other in zip(mine.operands, theirs.operands, strict=True):
            if one is not None and one.block == block and one == like:
                return other
    return None


def blocks_of(instruction: Instruction) -> list[int]:
    """The blocks that it uses."""
    return [operand.block for operand in instruction.operands if operand is not None]
