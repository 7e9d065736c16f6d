"""State that a child process begins anew, as none of its parent's other threads is there."""

from __future__ import annotations

import os
from threading import RLock
from typing import Protocol
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
    for one in list(_followed):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class OneAtATime:
    """`with one.lock`: one thread at a time; in a child process nobody has it."""

    def __init__(self) -> None:
        self.after_fork()
        follow(self)

    def after_fork(self) -> None:
        """See `BegunAnew`."""
        self.lock = RLock()
