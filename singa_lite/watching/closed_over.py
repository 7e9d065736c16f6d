"""What a recorded step freezes of a Python function: plain values that it closes over or reads as globals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from types import CellType, CodeType, FunctionType, MethodType

import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)


def closed_over(function: Callable[..., object]) -> Hashable:
    """Names and values of the numbers, texts and flags that the function reads from outside, and those that functions
    of its own module do which it calls. A step that was recorded by others is recorded again.
    """
    return tuple(_values(function, set()))


def owner(function: Callable[..., object]) -> list[object]:
    """The object whose attributes are options of the function: of a method or a callable object; else none."""
    if isinstance(function, FunctionType):
        return []
    found = function.__self__ if isinstance(function, MethodType) else function
    return [found] if hasattr(found, "__dict__") else []


def _values(function: object, seen: set[int]) -> Iterator[tuple[str, str]]:
    plain = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(plain, FunctionType):
        plain = vars(type(plain)).get("__call__")
    if not isinstance(plain, FunctionType) or id(plain) in seen:
        return
    seen.add(id(plain))
    for name, value in _outside(plain):
        if _is_plain(value):
            yield name, repr(value)
        elif isinstance(value, FunctionType) and value.__module__ == plain.__module__:
            yield from _values(value, seen)


def _outside(function: FunctionType) -> Iterator[tuple[str, object]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if not _is_empty(cell):
            yield name, cell.cell_contents
    for name in _names(code):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, value in (function.__kwdefaults__ or {}).items():
        yield name, value
    for number, value in enumerate(function.__defaults__ or ()):
        yield f"default {number}", value


def _names(code: CodeType) -> Iterator[str]:
    """Of globals and attributes, those in functions and comprehensions within it too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_empty(cell: CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


def _is_plain(value: object) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(map(_is_plain, value)))
