"""Rewriting by laws: places that match a law's left side, and the calls of its right side put there.

    law:        conv2d x weight bias z; $f z y  ->  conv2d x weight bias y~z
    recorded:   z = conv2d(x, w, b);  y = relu(z)
    here:       y = conv2d(x, w, b, activation="relu")

Passes say which places are worth it: by shapes, costs and what the kernels do in one go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from singa_lite.common.strides import laid_out, span, without_gaps
from singa_lite.compiler.ir.laws import Law, LawCall, LawWord, settings_of
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program, Rewriter
from singa_lite.compiler.ir.uses import Uses
from singa_lite.kernels.interface import SIGNATURES


class Place(NamedTuple):
    """A match of the left side of a law in a program.

    steps: of the left side's calls, in the law's order; named: what stands for its words, where that is a tensor;
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

    def lie_equal(self, *words: str) -> bool:
        """Whether these words are there, of one shape, dtype and strides."""
        return len({named and named[1:4] for named in map(self.named.get, words)}) == 1


class CallPosition(NamedTuple):
    """The position of a call of the right side, given by indices of calls of the left side. One says in whose place it
    stands, the other whose number, phase and layer it has.
    """

    place: int
    model: int


class Replacing:
    """A program of which some calls are replaced by what laws say."""

    def __init__(self, program: Program) -> None:
        self.program, self.uses = program, Uses(program.instructions)
        self._make = Rewriter(program)
        self._placed: dict[int, list[Instruction]] = {}

    def places(self, *laws: Law) -> Iterator[Place]:
        """The places at which laws hold, by rising steps of a law's first call: one for each."""
        for law in laws:
            for steps in self.uses.places([part.pattern for part in law.left]):
                found = [self.program.instructions[step] for step in steps]
                named = _named(law, found)
                if named is not None and law.holds(found):
                    pairs = zip(law.left, found, strict=True)
                    variables = {part.variable: part.kernels()[call.kernel] for part, call in pairs if part.variable}
                    yield Place(law, steps, named, variables)

    def may_put(self, place: Place, at: Sequence[CallPosition]) -> bool:
        """Whether the right side may stand there and lies as the law says, and nothing of the left side is gone.

        Nobody else needs what goes, all that the right side reads is there where it stands, and nobody reads in
        between its results or what lay there before. at: of each call of the right side.
        """
        if not self._placed.keys().isdisjoint(place.steps):
            return False
        if not all(self._may_lie(place, word) for part in place.law.right for word in part.words):
            return False
        left = _word_steps(place.law.left, place.steps)
        right = _word_steps(place.law.right, [place.steps[one.place] for one in at])
        kept = {word.before for part in place.law.left if part.stays for word in part.words}
        return all(
            _is_exclusive(place, word, left[word])
            and (word in right or word in kept or not left[word].written or self.is_local(place, word))
            and self._may_move(place, word, left[word], right.get(place.law.heirs.get(word, word), _NEVER))
            for word in place.named
        )

    def put(self, place: Place, at: Sequence[CallPosition]) -> None:
        """Put the right side there. at: of each of its calls."""
        for part, step in zip(place.law.left, place.steps, strict=True):
            if not part.stays:
                self._placed[step] = []
        for one, made in zip(at, self.calls_of(place, at), strict=True):
            self._placed[place.steps[one.place]].append(made)

    def calls_of(self, place: Place, at: Sequence[CallPosition]) -> list[Instruction]:
        """The calls of the right side."""
        found = [self.program.instructions[step] for step in place.steps]
        named, made = dict(place.named), list[Instruction]()
        for part, one in zip(place.law.right, at, strict=True):
            kernel = part.kernel_for(place.variables)
            operands = tuple(self._operand(place, named, word) for word in part.words)
            settings = settings_of(kernel, found, place.variables)
            made.append(self.program.target.call(found[one.model], kernel, operands, settings))
        return made

    def result(self) -> Program:
        """The program with all that was put into it."""
        return self._make.replaced(self._placed)

    def is_local(self, place: Place, word: str) -> bool:
        """Whether a word's tensor is a whole intermediate block that the calls of the place alone use."""
        operand = place.named[word]
        return is_whole_block(self.program, operand) and set(self.uses.steps[operand.block]) <= set(place.steps)

    def _may_lie(self, place: Place, word: LawWord) -> bool:
        """Whether a word that stands for a tensor of the left side may be made to lie as another one."""
        if not word.like or word.before not in place.named:
            return True
        named, wanted = place.named[word.before], place.named[word.like]
        fills = named.offset == 0 and self.program.sizes.get(named.block, named.nbytes) == named.nbytes
        return named[1:4] == wanted[1:4] or (fills and lie_alike(named, wanted))

    def _may_move(self, place: Place, word: str, left: _WordSteps, right: _WordSteps) -> bool:
        """True if a tensor has the same value at the new steps as at the old ones. Nobody may use it between two steps
        at which it is written.
        """
        block, writes = place.named[word].block, [*left.written, *right.written]
        every = [*writes, *left.read, *right.read]
        if self.uses.is_changed(block, min(every), max(every), left.written):
            return False
        return not right.written or not self.uses.is_used(block, min(writes), max(writes), place.steps)

    def _operand(self, place: Place, named: dict[str, Operand], word: LawWord) -> Operand | None:
        """What a word of the right side stands for; a new one in the block that it takes over, or in one of its own."""
        name, like = word.before, word.like
        model = named.get(like or name)
        if like and model is not None:
            known = named.get(name)
            if known is not None and known.shape == model.shape and _has_gaps(model):
                named[name] = known
            elif known is not None:
                named[name] = _without_gaps(model)._replace(block=known.block, offset=known.offset)
            elif place.law.heirs.get(like) == name:
                named[name] = model
            else:
                named[name] = _without_gaps(model)._replace(block=self._make.new_block(model.nbytes), offset=0)
        return named.get(name)


def _without_gaps(operand: Operand) -> Operand:
    """The same form without gaps, which a block of its own has room for: a piece of a concatenation has gaps."""
    if not _has_gaps(operand):
        return operand  # strides of axes of extent 1 stay, too
    return operand._replace(strides=without_gaps(operand.shape, operand.strides, operand.dtype.itemsize))


def _has_gaps(operand: Operand) -> bool:
    return len(span(operand.shape, operand.strides, operand.dtype.itemsize)) != operand.nbytes


class _WordSteps(NamedTuple):
    """Steps at which a word is written and read."""

    written: list[int]
    read: list[int]


_NEVER = _WordSteps([], [])


def _word_steps(parts: Sequence[LawCall], steps: Sequence[int]) -> dict[str, _WordSteps]:
    found: dict[str, _WordSteps] = defaultdict(lambda: _WordSteps([], []))
    for part, step in zip(parts, steps, strict=True):
        for word, role in zip(part.words, SIGNATURES[next(iter(part.kernels()))].roles, strict=True):
            if role != "Read":
                found[word.before].written.append(step)
            if role != "Write":
                found[word.before].read.append(step)
    return found


def _is_exclusive(place: Place, word: str, left: _WordSteps) -> bool:
    """Whether what is written is no other word's, is written once, and then read."""
    block = place.named[word].block
    if not left.written:
        return True
    (first, *more), others = left.written, (o.block for w, o in place.named.items() if w != word)
    return not more and block not in others and all(step >= first for step in left.read)


def _named(law: Law, found: Sequence[Instruction]) -> dict[str, Operand] | None:
    """The tensors of the words; None where one is not the same in all calls: activations do not care for the shape."""
    named: dict[str, Operand] = {}
    for part, call in zip(law.left, found, strict=True):
        for word, operand in zip(part.words, call.operands, strict=True):
            if operand is None:
                continue
            known = named.setdefault(word.before, operand)
            same_start = (known.block, known.offset) == (operand.block, operand.offset)
            if known != operand and not (part.variable and same_start and lie_alike(known, operand)):
                return None
    return named


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
