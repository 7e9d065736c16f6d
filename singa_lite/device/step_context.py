"""StepContext: where in a step the operations of each thread stand, and which thread records on a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Thread, current_thread
from time import monotonic, sleep
from types import MappingProxyType
from typing import NamedTuple

from singa_lite.common.contexts import WAIT
from singa_lite.common.errors import GraphError
from singa_lite.common.unique import Unique
from singa_lite.graph.graph import Graph, Phase

#: Seconds for which operations wait for the end of another thread's recording; then they are refused, as that thread
#: may wait for this one.
LONGEST_WAIT = 5.0


class StepPosition(NamedTuple):
    """The position in the step of a context's operations, and what they are recorded in."""

    phase: Phase = Phase.FORWARD
    layer: str = ""
    graph: Graph | None = None


class _Recorder(NamedTuple):
    graph: Graph
    thread: Thread


_START = StepPosition()
#: By a device's StepContext. A context variable, so that a step which an interrupt ends leaves nothing behind, see
#: `contexts`.
_here: ContextVar[Mapping[StepContext, StepPosition]] = ContextVar("here", default=MappingProxyType({}))


class StepContext(Unique):
    """Phase, layer and recording of the operations to come, by thread, and the one thread that records on a device.

    device: its name, for messages.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._recorders: dict[str, _Recorder] = {}  # one at most: setdefault() and pop() are each done at once

    @property
    def here(self) -> StepPosition:
        """Where the operations of the calling thread stand."""
        return _here.get().get(self, _START)

    def here_alone(self, doing: str, what: str = "") -> StepPosition:
        """As `here`, for what may not be done while another thread records: it waits for the end of that.

        doing, what: its name, for the GraphError where the end does not come in time.
        """
        here = _here.get().get(self, _START)
        if here.graph is None and self._recorders and not self._wait_for_recorder():
            raise GraphError(
                f"{doing}{what and f' {what!r}'} on {self._device}: wanted no recording by another thread meanwhile, "
                "which a net's first batch is; give each thread a device of its own: device.new_cpu()"
            )
        return here

    def _wait_for_recorder(self) -> bool:
        """Wait until no other thread records; False where one still does after `LONGEST_WAIT`."""
        end = monotonic() + LONGEST_WAIT
        while self._other_recorder() is not None:
            if monotonic() > end:
                return False
            sleep(WAIT)
        return True

    @property
    def graph(self) -> Graph | None:
        """The graph that this thread records now; that of another thread where its end does not come in time."""
        own = self.here.graph
        if own is not None or not self._recorders or self._wait_for_recorder():
            return own
        other = self._other_recorder()
        return None if other is None else other.graph

    def _other_recorder(self) -> _Recorder | None:
        """Another thread that records. What an interrupt has left of a recording of this one is cleared away."""
        recorder = self._recorders.get("")
        if recorder is None or (recorder.thread is not current_thread() and recorder.thread.is_alive()):
            return recorder
        self._recorders.pop("", None)
        return None

    @contextmanager
    def recording(self, graph: Graph) -> Iterator[Graph]:
        """Operations inside are recorded in the graph. GraphError inside another recording."""
        recorder = _Recorder(graph, current_thread())
        if self.here.graph is not None:
            raise GraphError("recording: wanted no other recording on this device, received one within another")
        self.here_alone("recording")
        while self._recorders.setdefault("", recorder) is not recorder:  # of a thread that has waited, too
            self.here_alone("recording")
        failed = True
        try:
            self._move(StepPosition(*self.here[:2], graph))
            yield graph
            failed = False
        finally:
            graph.close(failed)
            self._end_recording(graph)

    def _end_recording(self, graph: Graph) -> None:
        """Ends the recording of this graph. After an interrupt it may come late, while another one is open."""
        if self.here.graph is graph:
            self._move(StepPosition(*self.here[:2]))
        recorder = self._recorders.get("")
        if recorder is not None and recorder.graph is graph:
            self._recorders.pop("", None)

    @contextmanager
    def scope(self, phase: Phase | None, layer: str | None) -> Iterator[None]:
        """Operations inside stand in this phase and this layer; None leaves what was set outside."""
        before = self.here
        inside = before.phase if phase is None else phase, before.layer if layer is None else layer
        try:
            self._move(StepPosition(*inside, before.graph))
            yield
        finally:
            now = self.here
            if now[:2] == inside:  # else it ends late, after an interrupt
                self._move(StepPosition(*before[:2], now.graph))

    def _move(self, here: StepPosition) -> None:
        if here == _START:  # is not kept, as a context need not keep devices alive
            _here.set({context: there for context, there in _here.get().items() if context is not self})
        else:
            _here.set({**_here.get(), self: here})
