"""Functions of a class of the user's: all of them, and those that calls by this package come to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from types import FunctionType

from singa_lite.autograd.watching.read_names import moved_names, read_names
from singa_lite.common.described import is_ours

#: What is called of a layer, which has no such names before, and of any object.
_CALLED = frozenset({"forward", "setup", "__call__"})


def functions_of(kind: type) -> Mapping[str, list[FunctionType]]:
    """{name: the user's functions under it, those of bases too}; of a property what it is read by."""
    found: dict[str, list[FunctionType]] = {}
    for each in kind.__mro__:
        for name, value in {} if is_ours(each) else vars(each).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if isinstance(function, FunctionType) and not is_ours(function):
                found.setdefault(name, []).append(function)
    return found


def reached(kind: type, begin: Collection[str] | None = None) -> Iterator[FunctionType]:
    """Those that have a name of a base of this package's, and those that they name; each once.

    begin: in the place of all names to begin with. A class may state some that are called whether a step is replayed or
    not, `at_each_batch`, with which is not begun.
    """
    functions = functions_of(kind)
    if begin is None:
        apart = getattr(kind, "at_each_batch", ())
        names = [name for name in functions if name == "__call__" or not (name in apart or name.startswith("__"))]
        bases = [base for base in kind.__mro__ if is_ours(base)]
        begin = [name for name in names if name in _CALLED or any(hasattr(base, name) for base in bases)]
        begin = begin or [name for name in names if not bases]
    left, seen = [*begin], set[str]()
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            for function in functions.get(name, ()):
                yield function
                left += read_names(function.__code__)


@lru_cache(maxsize=1024)
def counted_by(kind: type) -> frozenset[str]:
    """Names that such functions move at each call and read besides, so that each call does something else."""
    codes = [each.__code__ for each in reached(kind)]
    moved = {name for code in codes for name in moved_names(code)}
    return frozenset(moved & {name for code in codes for name in read_names(code)})
