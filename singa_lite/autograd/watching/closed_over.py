"""Values of a Python function that a recorded step freezes: plain ones that it closes over or reads as globals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, MethodType

import numpy as np

#: Larger containers and arrays than this are known by their identity alone.
LARGEST = 4096

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)


def outside_values(function: Callable[..., object]) -> tuple[tuple[str, str | bytes], ...]:
    """Returns names and values of the numbers, texts and flags that the function reads from outside itself. Small
    containers and arrays of such count too, and what the functions of its own module read that it calls. A step that
    was recorded by others is recorded again.
    """
    return tuple(
        (name, kept)
        for each in called(function)
        for name, value in outside_reads(each)
        if (kept := plain_key(value)) is not None
    )


def owner(function: Callable[..., object]) -> list[object]:
    """The object whose attributes are options of the function: of a method or a callable object; else none."""
    if isinstance(function, FunctionType):
        return []
    found = function.__self__ if isinstance(function, MethodType) else function
    return [found] if hasattr(found, "__dict__") else []


def objects_of(function: FunctionType) -> list[object]:
    """Objects with settings that the function reads from outside, such as users' own operations."""
    return [value for _, value in outside_reads(function) if getattr(type(value), "has_settings", False)]


def called(function: object, seen: set[int] | None = None) -> Iterator[FunctionType]:
    """The function, or that of a method or a callable object, and those of its own module that it calls."""
    seen = set() if seen is None else seen
    plain = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(plain, FunctionType):
        plain = vars(type(plain)).get("__call__")
    if not isinstance(plain, FunctionType) or id(plain) in seen:
        return
    seen.add(id(plain))
    yield plain
    for _, value in outside_reads(plain):
        if isinstance(value, FunctionType) and value.__module__ == plain.__module__:
            yield from called(value, seen)


def outside_reads(function: FunctionType) -> Iterator[tuple[str, object]]:
    """(name, value) of all that it reads from outside."""
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


def plain_key(value: object) -> str | bytes | None:
    """A plain value, or a small list, dict or array of such, as what tells it from others; None: it is none."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.nbytes <= LARGEST and value.dtype != object else None
    if isinstance(value, list | dict | set) and len(value) > LARGEST:
        return None
    return repr(value) if is_plain(value) else None


def is_plain(value: object) -> bool:
    """Whether it is a number, a text or a flag, or holds such alone."""
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(each) for key, each in value.items())
    return isinstance(value, _PLAIN) or (isinstance(value, tuple | list | set) and all(map(is_plain, value)))
