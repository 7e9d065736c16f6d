"""The version of options: a number that rises whenever an option of an object is set.

A recorded step was made with the options of that time. It compares this one number before each run; only where the
number has risen are the objects looked at by which the step was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

_MISSING = object()
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class OptionVersion:
    """The number of changes of options in this process so far."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def rise(self) -> int:
        """Count a change; returns the new number."""
        self.number += 1
        return self.number


#: Of all objects of the process.
VERSION = OptionVersion()


class Versioned:
    """Base of objects with options: each knows which of them was set last, and when.

    An option is an attribute that has the name of a parameter of a constructor of its class or bases, or is listed in
    `further_options`, and not in `live_options`: those are read at each step, recorded or not.
    """

    further_options: ClassVar[frozenset[str]] = frozenset()
    live_options: ClassVar[frozenset[str]] = frozenset()
    #: (`OptionVersion.number` of the last change, the option's name).
    option_change: tuple[int, str] = (0, "")

    def note_change(self, option: str) -> None:
        """An option has another value from now on: steps that were recorded with the former one are recorded again."""
        object.__setattr__(self, "option_change", (VERSION.rise(), option))

    if not TYPE_CHECKING:  # where it would say that any attribute may be set

        def __setattr__(self, name, value):
            """Sets the attribute, and notes the change of an option."""
            before = vars(self).get(name, getattr(type(self), name, _MISSING))
            changes = before is not _MISSING and is_option(type(self), name) and not equal_values(before, value)
            object.__setattr__(self, name, value)
            if changes:
                self.note_change(name)

        def __delattr__(self, name):
            """Takes the attribute away, and notes the change of an option."""
            object.__delattr__(self, name)
            if is_option(type(self), name):
                Versioned.note_change(self, name)


class StateTable(dict[Any, Any]):
    """A dict that notes which entries are exchanged or taken out: a recorded step uses the tensors of those it had."""

    option_change: tuple[int, str] = (0, "")

    def _note(self, key: object) -> None:
        self.option_change = VERSION.rise(), f"entry {key!r}"

    def __setitem__(self, key: object, value: object) -> None:
        if key in self:
            self._note(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: object) -> None:
        super().__delitem__(key)
        self._note(key)

    def clear(self) -> None:
        """Takes all out."""
        for key in list(self):
            del self[key]

    def pop(self, key: object, *default: object) -> Any:
        """Takes one out, and returns it."""
        self._note(key)
        return super().pop(key, *default)

    def update(self, *given: Any, **named: object) -> None:
        """Puts several in."""
        for key, value in dict(*given, **named).items():
            self[key] = value


def parameters_of(constructor: Callable[..., object]) -> Mapping[str, Parameter]:
    """The parameters of a constructor but for the object itself, by name; none of one that does not say."""
    try:
        form = signature_of(constructor)
    except (TypeError, ValueError):
        return {}
    return {name: each for name, each in list(form.parameters.items())[1:] if each.kind in _NAMED}


@lru_cache(maxsize=1024)
def signature_of(constructor: Callable[..., object]) -> Signature:
    """The signature of a constructor or a function, read once."""
    return signature(constructor)


@lru_cache(maxsize=1024)
def option_names(kind: type) -> frozenset[str]:
    """The names of all options of a class."""
    found = set(getattr(kind, "further_options", ()))
    for each in kind.__mro__:
        if "__init__" in vars(each) and each is not object:
            found.update(parameters_of(vars(each)["__init__"]))
    return frozenset(found - getattr(kind, "live_options", frozenset()))


def is_option(kind: type, name: str) -> bool:
    """Whether an attribute of objects of this class is an option."""
    return not name.startswith("_") and name in option_names(kind)


def equal_values(one: object, other: object) -> bool:
    """Whether two values are of one type and equal."""
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # of an object's own comparison
        return False
