"""Names that a function's code reads and stores, as far as a record could depend on them."""

from __future__ import annotations

from collections.abc import Iterator
from dis import Instruction, get_instructions
from functools import lru_cache
from types import CodeType

_READS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"})
_STORES = frozenset({"STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF"})
_NUMBERS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})

_GROWS = frozenset({"append", "extend", "add"})


@lru_cache(maxsize=1024)
def read_names(code: CodeType) -> frozenset[str]:
    """Attributes, globals and names closed over that it reads, in functions within it too. Not among them is what it
    does no more to than count on, as `self.calls += 1` does.
    """
    return frozenset(name for name, behind in _loads(code) if not _counts_on(name, behind))


@lru_cache(maxsize=1024)
def moved_names(code: CodeType) -> frozenset[str]:
    """Those that it moves by a number, as `self.rate *= 0.9` does."""
    return frozenset(name for name, behind in _loads(code) if _is_incremented(name, behind))


@lru_cache(maxsize=1024)
def stored_names(code: CodeType) -> frozenset[str]:
    """Those that it writes."""
    return frozenset(step.argval for part in _parts(code) for step in get_instructions(part) if step.opname in _STORES)


def _loads(code: CodeType) -> Iterator[tuple[str, list[Instruction]]]:
    """(name, what is done next) of each reading."""
    for part in _parts(code):
        steps = list(get_instructions(part))
        for place, step in enumerate(steps):
            if step.opname in _READS:
                yield step.argval, steps[place + 1 : place + 5]


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)


def _counts_on(name: str, behind: list[Instruction]) -> bool:
    """Whether what follows is an operation with a number, whose result gets the same name, or a list that grows."""
    grows = bool(behind) and behind[0].opname in _READS and behind[0].argval in _GROWS
    return grows or _is_incremented(name, behind)


def _is_incremented(name: str, behind: list[Instruction]) -> bool:
    """Whether what follows is an operation with a number, whose result gets the same name."""
    if [step.opname for step in behind[1:2]] != ["BINARY_OP"] or behind[0].opname not in _NUMBERS:
        return False
    return any(step.opname in _STORES and step.argval == name for step in behind[2:])
