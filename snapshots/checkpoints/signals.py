"""Notes SIGTERM and Ctrl-C while training, so that the step is finished and written before the process leaves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from threading import current_thread, main_thread
from types import FrameType
from typing import TypeAlias

from singa_lite.training.fit import Training

#: What Python calls for a signal, or `signal.SIG_DFL` or `SIG_IGN`; None: a handler that was not set by Python.
Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | signal.Handlers | None

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Notes the first of the two; a further Ctrl-C is a KeyboardInterrupt at once. received: its number, 0 before.

    It works in the main thread alone, to which Python gives signals. A signal that is ignored stays ignored, as in a
    process started with `nohup`. A handler that was not set by Python stays, as it could not be put back. If there are
    several of these objects, each notes the signal. A child process has the handlers from before.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Handler] = {}
        self._process = 0
        self._training: Training | None = None

    def install(self, training: Training) -> None:
        """Note signals from now on, while the training is under way."""
        self.received, self._process, self._training = 0, os.getpid(), training
        if self._before:  # of a run that was interrupted before it could restore them
            self.restore()
        if current_thread() is not main_thread():
            return
        for number in _NUMBERS:
            if signal.getsignal(number) not in (None, signal.SIG_IGN):
                self._before[number] = signal.getsignal(number)
                signal.signal(number, self._note)

    def restore(self) -> None:
        """Put back the handlers from before."""
        for number, before in list(self._before.items()):
            signal.signal(number, before)
            del self._before[number]

    def leave(self, why: str) -> None:
        """Leave as the signal asks: KeyboardInterrupt, or SystemExit with the status of a process that it ends."""
        error = KeyboardInterrupt(why) if self.received == signal.SIGINT else SystemExit(128 + self.received)
        error.singa_lite_left = True  # type: ignore[union-attr]
        raise error

    def _note(self, number: int, frame: FrameType | None) -> None:
        over = self._training is None or not self._training.is_under_way
        if over or os.getpid() != self._process:  # `restore` was interrupted, or this is a child process
            self.restore()
            signal.raise_signal(number)
            return
        other = getattr(self._before.get(number), "__self__", None)
        if isinstance(other, Signals):
            other._note(number, frame)
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = self.received or number
