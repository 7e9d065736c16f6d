"""Interrupts that come inside a destructor, where Python ignores every exception: the next operation raises them.

Python notices a signal between two instructions, and so also at the first one of `__del__`, of a callback of `weakref`
(those of its dictionaries among them) or of a generator that is closed. What is raised there goes to
`sys.unraisablehook` and nowhere else: Ctrl-C would be printed, and training would go on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import local
from typing import Any

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
    os.register_at_fork(after_in_child=forget_ignored)  # the parent raises what came before the fork
