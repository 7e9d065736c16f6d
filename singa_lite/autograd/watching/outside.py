"""Values that code of the user's reads from outside its objects: plain ones, and those of its classes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from types import FunctionType

from singa_lite.autograd.watching.closed_over import called, outside_values, plain_key
from singa_lite.autograd.watching.reached import functions_of
from singa_lite.autograd.watching.read_names import read_names
from singa_lite.common.described import is_ours


class OutsideReads:
    """Called: what tells the values that methods of these objects read from outside, as they are then.

    further: gives more to be told. Numbers among the attributes of the user's classes count as outside, as `vars` of
    their objects do not have them.
    """

    def __init__(self, owners: Iterable[object], further: Iterable[Callable[[], Hashable]] = ()) -> None:
        kinds = dict.fromkeys(type(owner) for owner in owners)
        self._functions = list(dict.fromkeys(each for kind in kinds for each in _functions(kind)))
        self._classes = list(dict.fromkeys(pair for kind in kinds for pair in _class_names(kind)))
        self._further = tuple(further)

    def __call__(self) -> Hashable:
        functions = tuple(map(outside_values, self._functions))
        classes = tuple(plain_key(vars(kind).get(name)) for kind, name in self._classes)
        return functions, classes, tuple(each() for each in self._further)

    def values(self) -> dict[tuple[str, str], Hashable]:
        """{(whose, name): value}, of functions by their qualified names."""
        found: dict[tuple[str, str], Hashable] = {}
        for function in self._functions:
            found |= {(function.__qualname__, name): value for name, value in outside_values(function)}
        return found | {(kind.__qualname__, name): plain_key(vars(kind).get(name)) for kind, name in self._classes}

    def read(self) -> set[str]:
        """All names that the functions, and those that they call, read for other than to count on."""
        return {name for function in self._functions for name in names_read_by(function)}


def names_read_by(function: Callable[..., object]) -> set[str]:
    """By it, and by the functions of its module that it calls."""
    return {name for each in called(function) for name in read_names(each.__code__)}


def _functions(kind: type) -> Iterator[FunctionType]:
    for several in functions_of(kind).values():
        yield from several


def _class_names(kind: type) -> Iterator[tuple[type, str]]:
    names = {name for function in _functions(kind) for name in function.__code__.co_names}
    for each in kind.__mro__:
        if not is_ours(each) and each.__module__ != "builtins":
            yield from (
                (each, name) for name, value in vars(each).items() if name in names and plain_key(value) is not None
            )
