"""Counting: what a call of the user's code changed of the Python values that it goes by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

from singa_lite.autograd.watching.closed_over import is_plain
from singa_lite.autograd.watching.drawn import called_by, sources, stands_at
from singa_lite.autograd.watching.outside import OutsideReads, names_read_by
from singa_lite.autograd.watching.reached import reached
from singa_lite.autograd.watching.watch import Watch
from singa_lite.common.described import Described, is_ours


class Counting:
    """Notes numbers, texts and flags of some objects before their code is called once more.

    owners: objects of the user's classes; roots: further objects and functions that their code goes by. What a first
    call makes for later ones (a table, a flag that it is there) is no counting, so let it be there before.
    """

    def __init__(self, owners: Iterable[object], roots: Iterable[object]) -> None:
        self._owners = list(owners)
        self._outside = OutsideReads(self._owners)
        self._before = self._outside.values()
        known = {place: each.bookkeeping() for place, each in enumerate(self._owners) if isinstance(each, Described)}
        self._watch = Watch([*self._owners, *roots], known)
        functions = [each for owner in self._owners for each in reached(type(owner))]
        drawn = sources([*functions, *self._watch.functions], self._watch.objects)
        self._drawn = [(source, stands_at(source)) for source in drawn]

    def found(self) -> str:
        """In words, what the call changed and operations may go by; "" where there is nothing."""
        return next(self._found(), "")

    def undo(self) -> None:
        """The objects' numbers, texts and flags are what they were before the call."""
        for thing, name, then, now in list(self._watch.changed()):
            if not (is_plain(then) and is_plain(now)):
                continue
            held: Any = vars(thing) if hasattr(thing, "__dict__") else thing
            if isinstance(thing, list) and name == "length":
                del held[then:]
            elif isinstance(thing, list | dict) or not (isinstance(thing, FunctionType) or is_ours(type(thing))):
                held[name] = then

    def _found(self) -> Iterator[str]:
        read = {name for owner in self._owners for each in reached(type(owner)) for name in names_read_by(each)}
        for thing, name, then, now in self._watch.changed():
            if isinstance(thing, np.ndarray) or (is_plain(then) and is_plain(now) and self._matters(thing, name, read)):
                yield _change_text(self._called(thing, name), then, now)
        for (where, name), now in self._outside.values().items():
            then = self._before.get((where, name), now)
            if then != now and name in read:
                yield _change_text(f"{name} that {where} reads", then, now)
        for source, then in self._drawn:
            if stands_at(source) != then:
                yield f"other numbers of {called_by(source)}"

    def _matters(self, thing: object, name: object, read: set[str]) -> bool:
        """Whether code may read what has this name in the thing for other than to count on."""
        if isinstance(thing, FunctionType):
            return name in names_read_by(thing)
        if isinstance(thing, dict | list | set):
            names = self._watch.names_of(thing)
            return not names or not names.isdisjoint(read)
        return not is_ours(type(thing)) and name in read | _read_of(thing)

    def _called(self, thing: object, name: object) -> str:
        if isinstance(thing, FunctionType):
            return f"{name} that {thing.__qualname__} reads"
        if isinstance(thing, dict | list | set | np.ndarray):
            return f"{name!r} of {next(iter(self._watch.names_of(thing)), type(thing).__name__)}"
        return f"{name} of {getattr(thing, 'path', '') or type(thing).__name__!r}"


def _read_of(thing: object) -> set[str]:
    """Names that the object's own methods read."""
    return {name for each in reached(type(thing)) for name in names_read_by(each)}


def _change_text(what: str, then: object, now: object) -> str:
    return f"{what}, {then!s:.40} and then {now!s:.40}"
