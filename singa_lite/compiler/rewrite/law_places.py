"""Places in a program that match the left side of a law."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from singa_lite.common.strides import laid_out
from singa_lite.compiler.ir.laws import Law, LawCall, name_before_call
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.uses import Uses
from singa_lite.compiler.rewrite.matching import CallPattern, Matcher


class Place(NamedTuple):
    """steps: of the left side's calls, in the law's order; named: what stands for its words, where that is a tensor;
    variables: {variable: activation}.
    """

    law: Law
    steps: tuple[int, ...]
    named: dict[str, Operand]
    variables: dict[str, str]

    @property
    def activation(self) -> str:
        """What the law's variable stands for; "" where it has none."""
        return next(iter(self.variables.values()), "")


def places(program: Program, uses: Uses, law: Law) -> Iterator[Place]:
    """The places at which a law holds, by rising steps of its first call: one for each."""
    pattern = [_call_pattern(part) for part in law.left]
    for steps in Matcher(program.instructions, uses).places(pattern):
        found = [program.instructions[step] for step in steps]
        named = _named(law, found)
        if named is not None and law.holds(found):
            pairs = zip(law.left, found, strict=True)
            variables = {part.variable: part.kernels()[call.kernel] for part, call in pairs if part.variable}
            yield Place(law, steps, named, variables)


def _call_pattern(part: LawCall) -> CallPattern:
    words = tuple(None if word == "-" else word for word in words_of(part))
    return CallPattern(part.kernels(), part.variable, words, open=True)


def words_of(part: LawCall) -> list[str]:
    """The words of a call, each as it is before the call."""
    return [name_before_call(word) for word in part.words]


def _named(law: Law, found: Sequence[Instruction]) -> dict[str, Operand] | None:
    """The tensors of the words; None where one is not the same in all calls: activations do not care for the shape."""
    named: dict[str, Operand] = {}
    for part, call in zip(law.left, found, strict=True):
        for word, operand in zip(words_of(part), call.operands, strict=True):
            if operand is None:
                continue
            known = named.setdefault(word, operand)
            if known != operand and not (part.variable and _is_one(known, operand)):
                return None
    return named


def _is_one(one: Operand, other: Operand) -> bool:
    return (one.block, one.offset) == (other.block, other.offset) and lie_alike(one, other)


def lie_alike(one: Operand, other: Operand) -> bool:
    """Whether their elements lie in the same order: they have one form, or two shapes and both C order without gaps.

    So a product of rows goes with an activation of (n, time, features).
    """
    same = (one.shape, one.strides) == (other.shape, other.strides) or (_is_plain(one) and _is_plain(other))
    return same and (one.dtype, one.nbytes) == (other.dtype, other.nbytes)


def _is_plain(operand: Operand) -> bool:
    wanted = laid_out(operand.shape, range(len(operand.shape)), operand.dtype.itemsize)
    return all(e == 1 or a == b for e, a, b in zip(operand.shape, operand.strides, wanted, strict=True))


def is_whole_block(program: Program, operand: Operand) -> bool:
    """Whether it is all of an intermediate block."""
    return program.sizes.get(operand.block) == operand.nbytes


def is_local(program: Program, uses: Uses, place: Place, word: str) -> bool:
    """Whether the operand is a whole intermediate block that the calls of the place alone use."""
    operand = place.named[word]
    return is_whole_block(program, operand) and set(uses.steps[operand.block]) <= set(place.steps)


def is_all(program: Program, operand: Operand) -> bool:
    """Whether it is all of its block, as far as that is known: of one that is held it begins where the block does."""
    return operand.offset == 0 and program.sizes.get(operand.block, operand.nbytes) == operand.nbytes


def lie_equal(place: Place, *words: str) -> bool:
    """Whether these words are there, of one shape, dtype and strides."""
    return len({named and named[1:4] for named in map(place.named.get, words)}) == 1
