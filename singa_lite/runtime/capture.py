"""Replay of a step's launches as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from singa_lite.kernels.kernel_set import Launch
from singa_lite.notice import warn


class CapturedGraph(Protocol):
    """What a capture gives (`cupy.cuda.graph.Graph`)."""

    def launch(self, stream: Any) -> None: ...


class CapturingStream(Protocol):
    """What is wanted of a stream (`cupy.cuda.Stream`, made with non_blocking=True)."""

    def begin_capture(self) -> None: ...

    def end_capture(self) -> CapturedGraph: ...


class NotCapturable(RuntimeError):
    """Raised by a launch that reads or waits on the host, when a capture meets it."""


class CapturedReplay:
    """Runs launches: the first time one by one, then captured, from then on as one graph launch.

    The first run warms up: code is compiled and loaded, which a capture refuses. A capture does nothing but note, so
    where one fails nothing has run; then the launches run one by one for ever, and a warning says which was the cause.
    names: of what each launch does. cause: that of the refusal, "" as long as there was none.
    """

    def __init__(self, stream: CapturingStream, launches: Sequence[Launch], names: Sequence[str]) -> None:
        self.cause = ""
        self._stream = stream
        self._launches = tuple(launches)
        self._names = tuple(names)
        self._warm = False
        self._graph: CapturedGraph | None = None

    @property
    def is_captured(self) -> bool:
        """Whether a run is one graph launch."""
        return self._graph is not None

    def __call__(self) -> None:
        if self._graph is None and self._warm and not self.cause:
            self._graph = self._captured()
        if self._graph is not None:
            self._graph.launch(self._stream)
            return
        for launch in self._launches:
            launch()
        self._warm = True

    def pausing(self, place: int, wait: Callable[[], object]) -> None:
        """See `runtime.Replay`: a graph cannot wait for the host, so all of it waits."""
        wait()
        self()

    def _captured(self) -> CapturedGraph | None:
        try:
            return self._capture(range(len(self._launches)))
        except Exception as error:
            self.cause = self._culprit(error)
        warn(f"this step cannot be one CUDA graph: {self.cause}; its operations are launched one by one")
        return None

    def _capture(self, places: Sequence[int]) -> CapturedGraph:
        """The graph of these launches. What a launch raises comes out with the capture ended."""
        self._stream.begin_capture()
        try:
            for place in places:
                self._launches[place]()
        except BaseException:
            self._end_broken()
            raise
        return self._stream.end_capture()

    def _end_broken(self) -> None:
        try:
            self._stream.end_capture()
        except Exception:  # CUDA says once more that the capture is broken; the first word of it is on its way up
            return

    def _culprit(self, error: Exception) -> str:
        """The first launch that cannot be captured by itself: CUDA tells of some only when the capture ends."""
        for place, name in enumerate(self._names):
            try:
                self._capture([place])
            except Exception as own:
                return f"{name}: {own}"
        return f"its operations together: {error}"
