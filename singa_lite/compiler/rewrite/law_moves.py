"""Whether the right side of a law may stand at a place of a program: that nothing comes too late or too early."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from singa_lite.compiler.ir.laws import LawCall
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.uses import Uses
from singa_lite.compiler.rewrite.law_places import Place, is_local, words_of
from singa_lite.kernels.interface import SIGNATURES


class CallPosition(NamedTuple):
    """The position of a call of the right side, given by indices of calls of the left side. One says in whose place it
    stands, the other whose number, phase and layer it has.
    """

    place: int
    model: int


class _WordSteps(NamedTuple):
    """Steps at which a word is written and read."""

    written: list[int]
    read: list[int]


_NEVER = _WordSteps([], [])


def may_stand(program: Program, uses: Uses, place: Place, at: Sequence[CallPosition]) -> bool:
    """True if the right side may replace the left side at these positions. Nobody else needs what goes, all that the
    right side reads is there where it stands, and nobody reads in between its results or what lay there before.

    at: of each call of the right side.
    """
    left = _word_steps(place.law.left, place.steps)
    right = _word_steps(place.law.right, [place.steps[one.place] for one in at])
    heirs = place.law.heirs
    kept = {word for part in place.law.left if part.stays for word in words_of(part)}
    return all(
        _is_exclusive(place, word, left[word])
        and (word in right or word in kept or not left[word].written or is_local(program, uses, place, word))
        and _may_move(uses, place, word, left[word], right.get(heirs.get(word, word), _NEVER))
        for word in place.named
    )


def _word_steps(parts: Sequence[LawCall], steps: Sequence[int]) -> dict[str, _WordSteps]:
    found: dict[str, _WordSteps] = defaultdict(lambda: _WordSteps([], []))
    for part, step in zip(parts, steps, strict=True):
        for word, role in zip(words_of(part), SIGNATURES[next(iter(part.kernels()))].roles, strict=True):
            if role != "Read":
                found[word].written.append(step)
            if role != "Write":
                found[word].read.append(step)
    return found


def _is_exclusive(place: Place, word: str, left: _WordSteps) -> bool:
    """Whether what is written is no other word's, is written once, and then read."""
    block = place.named[word].block
    if not left.written:
        return True
    (first, *more), others = left.written, (o.block for w, o in place.named.items() if w != word)
    return not more and block not in others and all(step >= first for step in left.read)


def _may_move(uses: Uses, place: Place, word: str, left: _WordSteps, right: _WordSteps) -> bool:
    """True if a tensor has the same value at the new steps as at the old ones. Nobody may use it between two steps at
    which it is written.
    """
    block, writes = place.named[word].block, [*left.written, *right.written]
    every = [*writes, *left.read, *right.read]
    if uses.is_changed(block, min(every), max(every), left.written):
        return False
    return not right.written or not uses.is_used(block, min(writes), max(writes), place.steps)
