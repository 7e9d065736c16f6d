"""SIGTERM and Ctrl-C while training: noted, so that the step is finished and written before the process leaves."""

from __future__ import annotations

import signal
from threading import current_thread, main_thread
from types import FrameType
from typing import Any


class Signals:
    """Notes the first of the two; a further Ctrl-C is a KeyboardInterrupt at once. received: its number, 0 before.

    Only in the main thread, the one to which Python gives signals. A signal that is ignored stays ignored, as of a
    process started with `nohup`, and so does one whose handler was not set by Python, as it could not be put back.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Note signals from now on."""
        self.received = 0
        if current_thread() is not main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) not in (None, signal.SIG_IGN):
                self._before[number] = signal.signal(number, self._note)

    def restore(self) -> None:
        """Let signals do what they did before."""
        while self._before:
            signal.signal(*self._before.popitem())

    def leave(self, why: str) -> None:
        """Leave as the signal asks: KeyboardInterrupt, or SystemExit with the status of a process it had ended."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt(why)
        raise SystemExit(128 + self.received)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = self.received or number
