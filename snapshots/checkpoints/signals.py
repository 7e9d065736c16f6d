"""SIGTERM and Ctrl-C while training: noted, so that the step is finished and written before the process leaves."""

from __future__ import annotations

import os
import signal
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

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

    def install(self) -> None:
        """Note signals from now on."""
        self.received, self._process = 0, os.getpid()
        if current_thread() is not main_thread():
            return
        for number in _NUMBERS:
            if signal.getsignal(number) not in (None, signal.SIG_IGN):
                self._before[number] = signal.signal(number, self._note)

    def restore(self) -> None:
        """Let signals do what they did before."""
        while self._before:
            signal.signal(*self._before.popitem())

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
        if os.getpid() != self._process:  # forked while training
            self.restore()
            signal.raise_signal(number)
            return
        other = getattr(self._before.get(number), "__self__", None)
        if isinstance(other, Signals):
            other._note(number, frame)
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = self.received or number
