"""Arrays of other libraries in this GPU's memory: read in order with their owner's work, held until they are read."""

from __future__ import annotations

from collections import deque

from singa_lite.runtime.cupy_types import Cupy, CupyArray, Event, Stream


class Adopted:
    """Arrays of others that the main stream reads. stream: the main one; gpu: its number.

    An owner's work is ordered with ours by the stream that is current in CuPy where the array is handed in: CuPy's own
    owners work on it, and by default it is the one that PyTorch works on as well. An owner on another stream takes no
    part in that; its bytes are safe until they are read if it does not overwrite them, for the array is held.
    """

    def __init__(self, cupy: Cupy, gpu: int, stream: Stream) -> None:
        self._cupy = cupy
        self._gpu = gpu
        self._stream = stream
        self._leaving: list[CupyArray] = []
        self._held: deque[tuple[Event, list[CupyArray]]] = deque()

    def wait_for_owner(self) -> None:
        """Lets the main stream wait for the work that the current one has so far."""
        self._in_order(self._current(), self._stream)

    def let_go(self, array: CupyArray) -> None:
        """Lets the owner wait for the work that reads the array, and holds the array until that is done.

        A finalizer may call this while the stream is being captured; the array is then let go at the next call.
        """
        self.drop()
        self._leaving.append(array)
        if self._stream.is_capturing():
            return
        leaving, self._leaving = self._leaving, []
        self._held.append((self._in_order(self._stream, self._current()), leaving))

    def drop(self) -> None:
        """Forgets the arrays that have been read."""
        while self._held and self._held[0][0].done:
            self._held.popleft()

    def _current(self) -> Stream:
        stream: Stream = self._cupy.cuda.get_current_stream(self._gpu)
        return stream

    def _in_order(self, first: Stream, then: Stream) -> Event:
        """Lets the second stream wait for the work that the first one has so far; returns the event between them."""
        event: Event = self._cupy.cuda.Event(disable_timing=True)
        event.record(first)
        then.wait_event(event)
        return event
