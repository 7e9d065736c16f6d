"""Readers: what reads a net's parameters beside its training steps, as a checkpoint in the background does."""

from __future__ import annotations

from collections.abc import Callable

from singa_lite.common.contexts import follow
from singa_lite.graph.executable import Pause


class Readers:
    """Those that read parameters now, and those that will at the next step; a Pause says how to wait for one."""

    def __init__(self) -> None:
        self.after_fork()
        follow(self)

    def after_fork(self) -> None:
        """In a child process nothing reads: the threads that would are its parent's."""
        self._next: list[Callable[[], Pause]] = []
        self._reading: list[Pause] = []

    @property
    def are_idle(self) -> bool:
        """Whether nothing reads, and nothing is to begin."""
        return not self._next and not self._reading

    def at_next_step(self, begin: Callable[[], Pause]) -> None:
        """Let something begin to read when the next step begins. See `FeedForwardNet.beside_next_step`."""
        self._next.append(begin)

    def begin(self) -> Pause | None:
        """Begin what is to run beside the step that begins now; how to wait for all that reads, None: nothing does."""
        if not self._next:
            return None
        several, self._next = self._next, []
        for begin in several:
            self.note(begin())
        return Pause.of_all(self._reading)

    def note(self, pause: Pause) -> None:
        """Note something that is about to read parameters, so that no step overwrites them meanwhile."""
        if pause not in self._reading:
            self._reading.append(pause)

    def end(self, give_up: bool = True) -> None:
        """Wait until nothing reads parameters any more. give_up: readers that have not begun are told not to."""
        while self._reading:
            reader = self._reading[0]
            if give_up:
                reader.end()
            else:
                reader.wait()
            self._reading.remove(reader)
