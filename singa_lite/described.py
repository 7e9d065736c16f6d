"""Described: objects that know what they were constructed with, so that they can be written down and made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache
from inspect import Parameter, Signature, signature
from typing import Self

from singa_lite.unique import Unique


class Arguments:
    """What a constructor was given, by the names of its parameters; no defaults. It has slots, as it is no option."""

    __slots__ = ("by_name",)

    def __init__(self, by_name: Mapping[str, object]) -> None:
        self.by_name = by_name

    def __deepcopy__(self, memo: dict[int, object]) -> Arguments:
        """Copies of what can be copied beside the object: a net among them stays as it is."""
        return Arguments(
            {
                name: memo.get(id(value), value) if isinstance(value, Unique) else deepcopy(value, memo)
                for name, value in self.by_name.items()
            }
        )


class Described:
    """Base of what a net's configuration can hold: layers, losses, metrics, optimizers and what these are given."""

    _given: Arguments

    def __new__(cls, *args: object, **named: object) -> Self:
        made = super().__new__(cls)
        object.__setattr__(made, "_given", Arguments(_bound(cls.__init__, args, named)))  # frozen or not
        return made

    def __init__(self) -> None:
        """No arguments: without this, `object` would take any beside a `__new__` of our own."""

    @property
    def given_arguments(self) -> Mapping[str, object]:
        """What the constructor was given, by the names of its parameters; without defaults."""
        return self._given.by_name


def _bound(
    constructor: Callable[..., None], args: tuple[object, ...], named: Mapping[str, object]
) -> dict[str, object]:
    """The arguments by parameter; nothing where they do not fit, which the constructor is about to say."""
    form = _form(constructor)
    try:
        found = form.bind_partial(None, *args, **named).arguments
    except TypeError:
        return {}
    merged: dict[str, object] = {}
    for name, value in list(found.items())[1:]:
        if form.parameters[name].kind is Parameter.VAR_KEYWORD:
            merged |= value
        else:
            merged[name] = value
    return merged


@lru_cache(maxsize=1024)
def _form(constructor: Callable[..., None]) -> Signature:
    return signature(constructor)
