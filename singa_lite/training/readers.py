"""Readers: what reads a net's parameters beside its training steps, as a checkpoint in the background does."""

from __future__ import annotations

from collections.abc import Callable

from singa_lite.common.contexts import follow
from singa_lite.graph.executable import Pause


class Readers:
    """Keeps what reads parameters. reading: a pause to wait by for each; waiting: what begins at the next step."""

    def __init__(self) -> None:
        self.after_fork()
        follow(self)

    def after_fork(self) -> None:
        """In a child process nothing reads: the threads that would are its parent's."""
        self.waiting: list[Callable[[], Pause]] = []
        self.reading: list[Pause] = []

    def at_next_step(self, begin: Callable[[], Pause]) -> None:
        """Let something begin to read when the next step begins. See `FeedForwardNet.beside_next_step`."""
        self.waiting.append(begin)

    def begin(self) -> Pause | None:
        """Begin what is to run beside the step that begins now; how to wait for all that reads, None: nothing does."""
        if not self.waiting:
            return None
        several, self.waiting = self.waiting, []
        for begin in several:
            self.note(begin())
        return Pause.of_all(self.reading)

    def note(self, pause: Pause) -> None:
        """Note something that is about to read parameters, so that no step overwrites them meanwhile."""
        if pause not in self.reading:
            self.reading.append(pause)

    def end(self, give_up: bool = True) -> None:
        """Wait until nothing reads parameters any more. give_up: readers that have not begun are told not to."""
        while self.reading:
            reader = self.reading[0]
            if give_up:
                reader.end()
            else:
                reader.wait()
            self.reading.remove(reader)
