"""Contexts that surely end, whatever ends them.

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
from time import sleep
from typing import ParamSpec, TypeVar, TypeVarTuple

from singa_lite.common.forks import follow
from singa_lite.common.interrupts import raise_ignored

P = ParamSpec("P")
R = TypeVar("R")
Arguments = TypeVarTuple("Arguments")

#: Seconds until a thread that waits for a turn looks again.
WAIT = 0.0002


def in_own_context(function: Callable[P, R]) -> Callable[P, R]:
    """The function, each call of which ends with the context variables as they were when it began."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return copy_context().run(function, *args, **kwargs)

    return run


#: What the operations of the present step share, where they are done at once; None outside of steps.
_shared: ContextVar[dict[object, object] | None] = ContextVar("shared", default=None)


def shared_in_step() -> dict[object, object] | None:
    """What the operations of the present step share, where they are done at once; None outside of steps."""
    return _shared.get()


@in_own_context
def one_step(work: Callable[[*Arguments], R], *arguments: *Arguments) -> R:
    """work(*arguments), all of whose operations are of one step that is done at once."""
    _shared.set({})
    return work(*arguments)


#: The turns that the present call has.
_inside: ContextVar[tuple[StepLock, ...]] = ContextVar("inside", default=())


class StepLock:
    """A turn that one thread at a time has; it may be taken again inside.

    refusal: makes the error for a thread that comes while another has the turn. None: such a thread waits. It looks
    again and again, as a lock that an interrupt leaves taken would never be free.
    """

    __slots__ = ("__weakref__", "_context", "_refusal")

    def __init__(self, refusal: Callable[[], Exception] | None) -> None:
        self._refusal = refusal
        self._context = Context()  # which one thread can be in, and once
        follow(self)

    def after_fork(self) -> None:
        """In a child process, where the other threads are not: none of them has the turn."""
        self._context = Context()

    def run(self, work: Callable[[*Arguments], R], *arguments: *Arguments) -> R:
        """work(*arguments), in a context of its own, while no other thread has the turn."""
        raise_ignored()
        if self in _inside.get():
            return work(*arguments)
        begun = False

        def begin() -> R:
            nonlocal begun
            begun = True
            _inside.set((*_inside.get(), self))
            return work(*arguments)

        while True:
            try:
                return self._context.run(copy_context().run, begin)
            except RuntimeError:
                if begun:
                    raise
            if self._refusal is not None:
                raise self._refusal()
            sleep(WAIT)

    def run_with(self, other: StepLock, work: Callable[[*Arguments], R], *arguments: *Arguments) -> R:
        """As `run`, with the turn of `other` too: in one go where both are free, else this one's first."""
        raise_ignored()
        inside = _inside.get()
        if self not in inside and other not in inside:
            begun = False

            def begin() -> R:
                nonlocal begun
                begun = True
                _inside.set((*inside, self, other))
                return work(*arguments)

            try:
                both: Callable[..., R] = other._context.run
                return self._context.run(both, copy_context().run, begin)
            except RuntimeError:
                if begun:
                    raise
        return self.run(other.run, work, *arguments)
