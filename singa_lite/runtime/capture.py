"""Replay of a step's launches as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from singa_lite.common.notice import warn
from singa_lite.kernels.kernel_set import Launch
from singa_lite.runtime.cupy_types import CapturedGraph, CapturingStream


class NotCapturable(RuntimeError):
    """Raised by a launch that reads or waits on the host, when a capture meets it."""


class Joint:
    """A launch that is captured only with another one: they lead to another stream and back."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def __call__(self) -> None:
        self._launch()


class Exchanged(NamedTuple):
    """What processes have said to each other. number: how often they did, the same for all; values: by process."""

    number: int
    values: Sequence[Any]


class Agreement(Protocol):
    """How processes whose steps have work in common agree how to do it; all of them call it, in the same order."""

    def agree(self, value: object) -> Exchanged:
        """What all processes say."""


class Shared(Joint):
    """A joint launch of work that other processes take part in: a GPU's graph may have it where all have it so."""

    def __init__(self, launch: Launch, alike: Agreement) -> None:
        super().__init__(launch)
        self.alike = alike


class CapturedReplay:
    """Runs launches: the first time one by one, then captured, from then on as one graph launch.

    Where other processes take part in a step, all of them capture it in one run, or none does, and the graphs that were
    made in one run are launched together: NCCL wants that of its collectives. Where some of them have another form of
    batch than in the run of their graphs, their launches run one by one.

    The first run warms up: it compiles and loads code, which a capture refuses to do. A capture only notes the work, so
    where it fails nothing has run. The launches then run one by one for ever, and a warning names the cause.
    names: of what each launch does. cause: why the capture was refused, "" as long as it was not.
    """

    def __init__(self, stream: CapturingStream, launches: Sequence[Launch], names: Sequence[str]) -> None:
        self.cause = ""
        self._stream = stream
        self._launches = tuple(launches)
        self._names = tuple(names)
        self._warm = False
        self._graph: CapturedGraph | None = None
        self._alike = next((launch.alike for launch in self._launches if isinstance(launch, Shared)), None)
        self._captured_at, self._missed = 0, False

    @property
    def is_captured(self) -> bool:
        """Whether a run is one graph launch."""
        return self._graph is not None

    def __call__(self) -> None:
        if self._alike is not None:
            graph = self._agreed(self._alike)
        else:
            if self._graph is None and self._warm and not self.cause:
                self._graph = self._captured()
            graph = self._graph
        if graph is not None:
            graph.launch(self._stream)
            return
        for launch in self._launches:
            launch()
        self._warm = True

    def _agreed(self, alike: Agreement) -> CapturedGraph | None:
        """The graph to launch, None for launches one by one: the same answer in all processes.

        Whose graphs were not made together runs one by one once, as forms of batches may come that never come again,
        and makes another the next time.
        """
        number, values = alike.agree((self._warm and not self.cause, self._missed, self._captured_at))
        ready, missed, made_at = map(set, zip(*values, strict=True))
        if ready != {True}:
            return None
        if len(made_at) > 1 and False in missed:
            self._missed = True
            return None
        if made_at == {0} or len(made_at) > 1:
            self._make(alike, number)
        self._missed = False
        return self._graph

    def _make(self, alike: Agreement, number: int) -> None:
        """A graph in all processes, or in none."""
        self._graph = self._captured()
        made = alike.agree(self._graph is not None).values
        self._captured_at = number
        if not all(made):
            self._graph = None
            self.cause = self.cause or f"process {made.index(False)} cannot capture it"

    def pausing(self, index: int, wait: Callable[[], object]) -> None:
        """See `runtime.Replay`. A graph cannot wait for the host in its midst, so `wait` is called before all of it."""
        wait()
        self()

    def _captured(self) -> CapturedGraph | None:
        try:
            return self._capture(range(len(self._launches)))
        except Exception as error:
            self.cause = self._culprit(error)
        warn(f"this step cannot be one CUDA graph: {self.cause}; its operations are launched one by one")
        return None

    def _capture(self, indices: Sequence[int]) -> CapturedGraph:
        """The graph of these launches. Where a launch raises, the capture is ended before the error goes on."""
        self._stream.begin_capture()
        try:
            for index in indices:
                self._launches[index]()
        except BaseException:
            self._end_broken()
            raise
        return self._stream.end_capture()

    def _end_broken(self) -> None:
        try:
            self._stream.end_capture()
        except Exception:  # CUDA says again that the capture is broken; the first error is on its way up
            return

    def _culprit(self, error: Exception) -> str:
        """Names the first launch that cannot be captured by itself: CUDA reports some only when the capture ends."""
        for index, name in enumerate(self._names):
            if isinstance(self._launches[index], Joint):
                continue
            try:
                self._capture([index])
            except Exception as own:
                return f"{name}: {own}"
        return f"its operations together: {error}"
