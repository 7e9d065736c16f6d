"""What holds for a while, and surely ends, whatever ends it.

An interrupt (Ctrl-C) may come between any two instructions of Python: after `__enter__` did its work and before the
`with` block is entered, and at the first instruction of `finally` or `__exit__`. So no flag, lock or setting that such
code should take back is sure to be taken back. `Context.run` of `contextvars` is written in C: what its function sets
in context variables is gone when it ends, and that it may run once at a time ends with it too, without an instruction
of Python. Whatever must not outlive a training step is kept so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def in_own_context(function: Callable[P, R]) -> Callable[P, R]:
    """The function, each call of which ends with the context variables as they were when it began."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return copy_context().run(function, *args, **kwargs)

    return run


#: Those that the present call is inside of.
_inside: ContextVar[tuple[Alone, ...]] = ContextVar("inside", default=())


class Alone:
    """A turn that nobody waits for: one thread at a time has it, and may take it again inside.

    refusal: makes the error for a thread that comes while another has it.
    """

    __slots__ = ("_refusal", "_turn")

    def __init__(self, refusal: Callable[[], Exception]) -> None:
        self._refusal = refusal
        self._turn = Context()  # which one thread can be in, and once

    def run(self, work: Callable[..., R], *arguments: Any) -> R:
        """work(*arguments), in a context of its own, while no other thread does any here."""
        if self in _inside.get():
            return work(*arguments)
        begun = False

        def begin() -> R:
            nonlocal begun
            begun = True
            _inside.set((*_inside.get(), self))
            return work(*arguments)

        try:
            return self._turn.run(copy_context().run, begin)
        except RuntimeError:
            if begun:
                raise
        raise self._refusal()
