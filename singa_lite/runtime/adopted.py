"""Arrays of other owners, in this GPU's memory: read in order with their owner's work, held until they are read."""

from __future__ import annotations

from collections import deque
from typing import Any


class Adopted:
    """What the main stream reads of others. stream: the main one; gpu: its number.

    An owner's work is ordered with ours by the stream that is current in CuPy where the array is handed in: CuPy's own
    owners work on it, and by default it is the one that PyTorch works on as well. An owner on another stream takes no
    part in that; its bytes are safe until they are read if it does not overwrite them, for the array is held.
    """

    def __init__(self, cupy: Any, gpu: int, stream: Any) -> None:
        self._cupy = cupy
        self._gpu = gpu
        self._stream = stream
        self._leaving: list[Any] = []
        self._held: deque[tuple[Any, list[Any]]] = deque()

    def wait_for_owner(self) -> None:
        """The main stream goes on when the current one has done what it was asked for so far."""
        self._in_order(self._current(), self._stream)

    def let_go(self, array: Any) -> None:
        """Nothing more will be asked of the array: its owner goes on when that is done, and until then it lives.

        Not while the stream is being captured, when a finalizer may call this too: then at the next call.
        """
        self.drop()
        self._leaving.append(array)
        if self._stream.is_capturing():
            return
        leaving, self._leaving = self._leaving, []
        self._held.append((self._in_order(self._stream, self._current()), leaving))

    def drop(self) -> None:
        """Forget the arrays that are read."""
        while self._held and self._held[0][0].done:
            self._held.popleft()

    def _current(self) -> Any:
        return self._cupy.cuda.get_current_stream(self._gpu)

    def _in_order(self, first: Any, then: Any) -> Any:
        """What one stream was asked for so far comes before what the other will be; the event between them."""
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(first)
        then.wait_event(event)
        return event
