"""SideStream: work on a GPU that goes on, on a stream of its own, while the main stream does something else.

    main    ... a | b c d ...          | e ...
    beside        asked -> work -> done ^ waited for

The work begins behind all that the main stream was asked for before, and the main stream waits for its end where it is
told to. In a capture the other stream joins by these events, so that the work is a branch of the graph.
"""

from __future__ import annotations

from collections.abc import Callable

from singa_lite.kernels.kernel_set import Launch
from singa_lite.runtime.capture import Joint
from singa_lite.runtime.cupy_types import Cupy, Event, Stream


class SideStream:
    """A further stream of the current GPU. stream: the main one."""

    def __init__(self, cupy: Cupy, stream: Stream) -> None:
        self._cupy = cupy
        self._main = stream
        self.stream: Stream = cupy.cuda.Stream(non_blocking=True)

    def pair(self, work: Callable[[int], object]) -> tuple[Launch, Launch]:
        """Launches of the beginning and of the end. work: asks for it on the stream of that pointer."""
        main, side = self._main, self.stream
        asked, done = self._event(), self._event()

        def begin() -> None:
            asked.record(main)
            side.wait_event(asked)
            work(side.ptr)
            done.record(side)

        def end() -> None:
            main.wait_event(done)

        return Joint(begin), Joint(end)

    def _event(self) -> Event:
        event: Event = self._cupy.cuda.Event(disable_timing=True)
        return event
