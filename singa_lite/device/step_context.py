"""StepContext: where in a step the operations of each thread stand, and which thread records on a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Thread, current_thread
from types import MappingProxyType
from typing import NamedTuple

from singa_lite.common.errors import GraphError
from singa_lite.common.unique import Unique
from singa_lite.graph.graph import Graph, Phase


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
        """As `here`, for what may not be done while another thread records: GraphError then. doing, what: its name."""
        here = _here.get().get(self, _START)
        if here.graph is None and self._recorders and self._other_recorder() is not None:
            raise GraphError(
                f"{doing}{what and f' {what!r}'} on {self._device}: wanted no recording by another thread meanwhile, "
                "which a net's first batch is; give each thread a device of its own: device.new_cpu()"
            )
        return here

    @property
    def graph(self) -> Graph | None:
        """The graph that some thread records now."""
        own = self.here.graph
        if own is not None or not self._recorders:
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
        nested = self.here_alone("recording").graph is not None
        if nested or self._recorders.setdefault("", recorder) is not recorder:
            raise GraphError("recording: wanted no other recording on this device, received one within another")
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
