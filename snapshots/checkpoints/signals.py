"""SIGTERM and Ctrl-C while training: noted, so that the step is finished and written before the process leaves."""

from __future__ import annotations

import os
import signal
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

from singa_lite.fit import Training

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Notes the first of the two; a further Ctrl-C is a KeyboardInterrupt at once. received: its number, 0 before.

    Only in the main thread, the one to which Python gives signals. A signal that is ignored stays ignored, as of a
    process started with `nohup`, and so does one whose handler was not set by Python, as it could not be put back.
    Where there are several of these, each notes it. A child process has its signals as they were before.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}
        self._process = 0
        self._training: Training | None = None

    def install(self, training: Training) -> None:
        """Note signals from now on, while it is under way."""
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
        """Let signals do what they did before."""
        for number, before in list(self._before.items()):
            signal.signal(number, before)
            del self._before[number]

    def leave(self, why: str) -> None:
        """Leave as the signal asks: KeyboardInterrupt, or SystemExit with the status of a process it had ended."""
        error = KeyboardInterrupt(why) if self.received == signal.SIGINT else SystemExit(128 + self.received)
        error.singa_lite_left = True  # type: ignore[union-attr]
        raise error

    @staticmethod
    def has_left(error: BaseException) -> bool:
        """Whether it is by `leave` of one of these, between two steps."""
        return getattr(error, "singa_lite_left", False)

    def _note(self, number: int, frame: FrameType | None) -> None:
        over = self._training is None or not self._training.is_under_way
        if over or os.getpid() != self._process:  # interrupted before it was restored, or forked while training
            self.restore()
            signal.raise_signal(number)
            return
        other = getattr(self._before.get(number), "__self__", None)
        if isinstance(other, Signals):
            other._note(number, frame)
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = self.received or number
