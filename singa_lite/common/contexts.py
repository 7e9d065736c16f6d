"""Contexts that surely end, interrupts that are surely raised, and what a child process begins anew.

An interrupt (Ctrl-C) may come between any two instructions of Python: after `__enter__` did its work and before the
`with` block is entered, and at the first instruction of `finally` or `__exit__`. So no flag, lock or setting that such
code should take back is sure to be taken back. `Context.run` of `contextvars` is written in C: what its function sets
in context variables is gone when it ends, and that it may run once at a time ends with it too, without an instruction
of Python. Whatever must not outlive a training step is kept so.

An interrupt may also come inside a destructor, where Python ignores every exception: at the first instruction of
`__del__`, of a callback of `weakref` (those of its dictionaries among them) or of a generator that is closed. What is
raised there goes to `sys.unraisablehook` and nowhere else: Ctrl-C would be printed, and training would go on. So it is
noted there, and the next operation raises it.

A child process has none of its parent's other threads: what waits for one, or is kept from others by one, begins anew.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from functools import wraps
from threading import RLock, local
from time import sleep
from typing import Any, ParamSpec, Protocol, TypeVar, TypeVarTuple
from weakref import WeakSet


class BegunAnew(Protocol):
    """An object that a child process begins anew: it waits for other threads, or is kept from others by one."""

    def after_fork(self) -> object:
        """Called in a child process: no other thread has it, or does something for it."""


_followed: WeakSet[BegunAnew] = WeakSet()


def follow(one: BegunAnew) -> None:
    """Call its `after_fork` in each child process, as long as it lives."""
    _followed.add(one)


def _in_child() -> None:
    forget_ignored()  # the parent raises what came before the fork
    for one in list(_followed):
        one.after_fork()


class OneAtATime:
    """`with one.lock`: one thread at a time; in a child process nobody has it."""

    def __init__(self) -> None:
        self.after_fork()
        follow(self)

    def after_fork(self) -> None:
        """See `BegunAnew`."""
        self.lock = RLock()


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


#: What signals raise: Ctrl-C, and `sys.exit` in a handler of SIGTERM.
INTERRUPTS = KeyboardInterrupt, SystemExit


class _Ignored(local):
    """The interrupt that Python ignored in each thread since the last operation there."""

    interrupt: BaseException | None = None


_ignored = _Ignored()


class _Hook:
    """The hook that Python calls with an exception that it ignores. before: the hook that gets all others."""

    def __init__(self, before: Callable[[Any], object]) -> None:
        self._before = before

    def __call__(self, given: Any) -> None:
        if isinstance(given.exc_value, INTERRUPTS):
            _ignored.interrupt = given.exc_value.with_traceback(None)  # whose frames would keep what is dying
        else:
            self._before(given)


def raise_ignored() -> None:
    """Raises what Python ignored in this thread since the last operation, if that was an interrupt."""
    if type(sys.unraisablehook) is not _Hook:  # at first, and where somebody has set another hook since
        sys.unraisablehook = _Hook(sys.unraisablehook)
    found = _ignored.interrupt
    if found is not None:
        _ignored.interrupt = None
        raise found


def forget_ignored() -> None:
    """What Python ignored in this thread is raised no more."""
    _ignored.interrupt = None


raise_ignored()  # sets the hook
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
