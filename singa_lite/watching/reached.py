"""Functions of a class of the user's: all of them, and those that calls by this package come to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import FunctionType

from singa_lite.described import is_ours
from singa_lite.watching.read_names import read_names


def functions_of(kind: type) -> Mapping[str, list[FunctionType]]:
    """{name: the user's functions under it, those of bases too}; of a property what it is read by."""
    found: dict[str, list[FunctionType]] = {}
    for each in kind.__mro__:
        for name, value in {} if is_ours(each) else vars(each).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if isinstance(function, FunctionType) and not is_ours(function):
                found.setdefault(name, []).append(function)
    return found


def reached(kind: type, apart: Collection[str] = (), *, only: Collection[str] | None = None) -> Iterator[FunctionType]:
    """Those that have a name of a base of this package's, and those that they name; each once.

    apart: names that are not begun with; only: in the place of all names to begin with.
    """
    functions = functions_of(kind)
    if only is None:
        bases = [base for base in kind.__mro__ if is_ours(base)]
        only = [name for name in functions if any(hasattr(base, name) for base in bases)] or [*functions]
    left = [name for name in only if name not in apart and (name == "__call__" or not name.startswith("__"))]
    seen: set[str] = set()
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            for function in functions.get(name, ()):
                yield function
                left += read_names(function.__code__)
