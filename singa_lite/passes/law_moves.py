"""Whether the right side of a law may stand at a place of a program: that nothing comes too late or too early."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.passes.law_places import Place, is_within, words_of
from singa_lite.passes.laws import Part
from singa_lite.passes.program import Program
from singa_lite.passes.uses import Uses


class At(NamedTuple):
    """Where a call of the right side goes: in whose place, and whose number, phase and layer it has; both by the index
    of a call of the left side.
    """

    place: int
    model: int


class _Touched(NamedTuple):
    """Steps at which a word is written and read."""

    written: list[int]
    read: list[int]


_NEVER = _Touched([], [])


def may_stand(program: Program, uses: Uses, place: Place, at: Sequence[At]) -> bool:
    """Whether nobody else needs what goes, all that the right side reads is there where it stands, and nobody looks in
    between for its results, nor for what lay there before.

    at: of each call of the right side.
    """
    left = _touched(place.law.left, place.steps)
    right = _touched(place.law.right, [place.steps[one.place] for one in at])
    heirs = place.law.heirs
    kept = {word for part in place.law.left if part.stays for word in words_of(part)}
    return all(
        _is_alone(place, word, left[word])
        and (word in right or word in kept or not left[word].written or is_within(program, uses, place, word))
        and _may_move(uses, place, word, left[word], right.get(heirs.get(word, word), _NEVER))
        for word in place.named
    )


def _touched(parts: Sequence[Part], steps: Sequence[int]) -> dict[str, _Touched]:
    found: dict[str, _Touched] = defaultdict(lambda: _Touched([], []))
    for part, step in zip(parts, steps, strict=True):
        for word, role in zip(words_of(part), SIGNATURES[next(iter(part.kernels()))].roles, strict=True):
            if role != "Read":
                found[word].written.append(step)
            if role != "Write":
                found[word].read.append(step)
    return found


def _is_alone(place: Place, word: str, left: _Touched) -> bool:
    """Whether what is written is no other word's, is written once, and then read."""
    block = place.named[word].block
    if not left.written:
        return True
    (first, *more), others = left.written, (o.block for w, o in place.named.items() if w != word)
    return not more and block not in others and all(step >= first for step in left.read)


def _may_move(uses: Uses, place: Place, word: str, left: _Touched, right: _Touched) -> bool:
    """Whether the word's tensor is at the new steps what it was at the old ones, and nobody uses it between two at
    which it is written.
    """
    block, writes = place.named[word].block, [*left.written, *right.written]
    every = [*writes, *left.read, *right.read]
    if uses.is_changed(block, min(every), max(every), left.written):
        return False
    return not right.written or not uses.is_used(block, min(writes), max(writes), place.steps)
