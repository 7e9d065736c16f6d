"""A CuPy whose streams do their work late, in any order that CUDA allows: shows what does not wait for what it needs.

What a stream is asked for is noted, and done when somebody waits: then a stream is drawn again and again, and does its
first piece of work if no event holds it back. Memory that was freed serves the next request of its pool at once, as
with CuPy, and its bytes are those of the host.
"""

from __future__ import annotations

import ctypes
import random
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.lib.stride_tricks import as_strided

import singa_lite.runtime
from singa_lite.common.strides import ordered_strides

#: What pinned bytes hold that were given back.
STALE = 0xEE


def host(array: Any) -> np.ndarray:
    """NumPy's view of such an array, for work that is done on it."""
    span = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True))
    memory = (ctypes.c_char * (span + array.dtype.itemsize)).from_address(array.data.ptr)
    return as_strided(np.frombuffer(memory, array.dtype, 1), array.shape, array.strides, writeable=True)


def _may_be_left_out(method: Callable[..., None]) -> Callable[..., None]:
    """A method that does nothing where it is called from the line that `LateCupy.without` names."""

    @wraps(method)
    def asked(self: Any, *arguments: Any) -> None:
        if LateCupy.without is None or LateCupy.without != _line(sys._getframe(1)):
            method(self, *arguments)

    return asked


def _line(frame: FrameType) -> tuple[str, int]:
    """(file, line) where it is."""
    return Path(frame.f_code.co_filename).name, frame.f_lineno


class Event:
    """Done when all of what its stream was asked for before its last record is done; and before the first one."""

    def __init__(self, **_options: Any) -> None:
        self.recorded = self.reached = 0
        self.machine: LateCupy | None = None

    @_may_be_left_out
    def record(self, stream: Stream) -> None:
        """Behind what the stream was asked for so far."""
        capture = stream.machine.capture
        if capture is not None and stream in capture.asked:
            capture.record(self, stream)
            return
        self.machine, self.recorded = stream.machine, self.recorded + 1
        number = self.recorded
        stream.submit(lambda: setattr(self, "reached", number))

    @property
    def done(self) -> bool:
        return self.reached == self.recorded

    @_may_be_left_out
    def synchronize(self) -> None:
        if self.machine is not None:
            self.machine.until(lambda: self.done)


class Stream:
    """Work that is still to be done: (ready, do)."""

    def __init__(self, machine: LateCupy) -> None:
        self.machine = machine
        self.ptr = len(machine.streams)  # of the null stream, which is the first, 0
        self.work: deque[tuple[Callable[[], bool], Callable[[], Any]]] = deque()
        self.capturing = False
        machine.streams.append(self)

    def submit(self, do: Callable[[], Any], ready: Callable[[], bool] = lambda: True) -> None:
        capture = self.machine.capture
        if capture is not None and self in capture.asked:
            capture.submit(self, do, ready)
            return
        assert not self.capturing, "a capture would note this and do it at each launch"
        self.work.append((ready, do))

    @_may_be_left_out
    def wait_event(self, event: Event) -> None:
        """What is asked for from now on comes behind the event's last record; that is fixed here."""
        capture = self.machine.capture
        if capture is not None and (self in capture.asked or event in capture.events):
            capture.wait(self, event)
            return
        number = event.recorded
        self.submit(lambda: None, lambda: event.reached >= number)

    @_may_be_left_out
    def synchronize(self) -> None:
        self.machine.until(lambda: not self.work)

    @property
    def done(self) -> bool:
        """Whether nothing is left; a little is done meanwhile."""
        self.machine.some()
        return not self.work

    def is_capturing(self) -> bool:
        """Whether work is noted; or as a test says."""
        capture = self.machine.capture
        return self.capturing or (capture is not None and self in capture.asked)

    def begin_capture(self) -> None:
        """Note from now on what this stream is asked for, and those that wait for its events."""
        self.machine.capture = Capture(self)

    def end_capture(self) -> Capture:
        """What was noted. Every stream that joined must have been waited for."""
        capture, self.machine.capture = self.machine.capture, None
        assert capture is not None
        capture.check_joined()
        return capture

    def __enter__(self) -> None:
        self.machine.current.append(self)

    def __exit__(self, *_: Any) -> None:
        self.machine.current.pop()


class Capture:
    """Work of one stream, and of those that joined it by events; launched as often as wanted.

    asked: {stream: how much it was asked for}; events: {event recorded inside: (its stream, how much came before)}.
    """

    def __init__(self, main: Stream) -> None:
        self.main = main
        self.asked = {main: 0}
        self.events: dict[Event, tuple[Stream, int]] = {}
        self._joined: dict[Stream, int] = {}
        self._noted: list[Callable[[], Any]] = []

    def submit(self, stream: Stream, do: Callable[[], Any], ready: Callable[[], bool]) -> None:
        self.asked[stream] += 1
        self._noted.append(lambda: stream.submit(do, ready))

    def record(self, event: Event, stream: Stream) -> None:
        self.events[event] = stream, self.asked[stream]
        self._noted.append(lambda: event.record(stream))

    def wait(self, stream: Stream, event: Event) -> None:
        """The stream joins, if it is not there yet."""
        assert event in self.events, "a capture may not wait for work outside it"
        self.asked.setdefault(stream, 0)
        if stream is self.main:
            side, before = self.events[event]
            self._joined[side] = max(before, self._joined.get(side, 0))
        self._noted.append(lambda: stream.wait_event(event))

    def check_joined(self) -> None:
        """CUDA refuses a capture that leaves a stream's work behind."""
        for stream, asked in self.asked.items():
            assert stream is self.main or self._joined.get(stream) == asked, "a stream's work was not waited for"

    def launch(self, stream: Stream) -> None:
        assert stream is self.main
        for ask in self._noted:
            ask()


class Pointer:
    """`cupy.cuda.MemoryPointer`."""

    def __init__(self, memory: Any, offset: int = 0) -> None:
        self.memory = memory
        self.ptr = memory.bytes.ctypes.data + offset
        self._offset = offset

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.memory, self._offset + offset)


class Memory:
    """Bytes of a pool, which has them back when nothing points there any more."""

    def __init__(self, pool: MemoryPool, held: np.ndarray) -> None:
        self.pool, self.bytes = pool, held

    def __del__(self) -> None:
        self.pool.free.append(self.bytes)


class MemoryPool:
    """`cupy.cuda.MemoryPool` over a GPU of so many bytes: what was freed last is what comes next."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = self.limit = room
        self.free: list[np.ndarray] = []
        self.given_back: list[np.ndarray] = []  # late work may still touch them
        self.total = 0

    def malloc(self, nbytes: int) -> Pointer:
        """The last freed bytes that are enough, else new ones."""
        for place in reversed(range(len(self.free))):
            if self.free[place].nbytes >= nbytes:
                return Pointer(Memory(self, self.free.pop(place)))
        if self.total + nbytes > self.limit:
            raise MemoryError("out of memory")
        self.total += nbytes
        return Pointer(Memory(self, np.full(nbytes, STALE, np.uint8)))

    def total_bytes(self) -> int:
        return self.total

    def set_limit(self, size: int) -> None:
        """0: none."""
        self.limit = min(size or self.room, self.room)

    def free_all_blocks(self) -> None:
        self.total -= sum(block.nbytes for block in self.free)
        self.given_back += self.free
        self.free = []


class Pinned(np.ndarray):
    """Pinned bytes: copies read and write them late. What is left of them when they die is garbage."""

    def __del__(self) -> None:
        if self.base is None:
            self.fill(STALE)


class PinnedMemory:
    """`cupy.cuda.PinnedMemory`, so many bytes of which nobody else has any."""

    def __init__(self, held: Pinned) -> None:
        self._held = held
        self.ptr = held.ctypes.data


class Array:
    """`cupy.ndarray`; speaks DLPack as CuPy's do: the reader waits for the stream that is current when it asks."""

    def __init__(self, machine: LateCupy, shape: Sequence[int], dtype: Any, memptr: Any, strides: Any = None) -> None:
        self._machine = machine
        self.shape, self.dtype, self.data = tuple(shape), np.dtype(dtype), memptr
        self.strides = tuple(
            ordered_strides(self.shape, range(len(self.shape)), self.dtype.itemsize) if strides is None else strides
        )
        self.size = int(np.prod(self.shape))
        self.nbytes = self.size * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Array:
        return self._shown(host(self)[index])

    @property
    def T(self) -> Array:
        return self._shown(host(self).T)

    def swapaxes(self, first: int, second: int) -> Array:
        return self._shown(host(self).swapaxes(first, second))

    def reshape(self, *shape: Any) -> Array:
        return self._shown(host(self).reshape(*shape))

    def view(self, dtype: Any) -> Array:
        return self._shown(host(self).view(dtype))

    def _shown(self, part: np.ndarray) -> Array:
        """A view of the same memory. ValueError for what CuPy would copy."""
        whole = host(self)
        if part.size and not np.may_share_memory(whole, part):
            raise ValueError(f"wanted a view, received a copy of shape {part.shape}")
        moved = self.data + (part.ctypes.data - whole.ctypes.data)
        return Array(self._machine, part.shape, part.dtype, moved, part.strides)

    def fill(self, value: float) -> None:
        shown = host(self)
        self._machine.get_current_stream().submit(lambda: shown.fill(value))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: Stream) -> Any:
        event = Event()
        event.record(self._machine.get_current_stream())
        stream.wait_event(event)
        return self.shape, self.dtype, self.data, self.strides


class LateCupy:
    """The module. seed: of the order in which streams come to their work.

    without: (file, line) of a wait or a record of the package's that is left out, to see what that does.
    """

    without: tuple[str, int] | None = None

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.streams: list[Stream] = []
        self.RawModule: Any = None
        null = Stream(self)
        self.current = [null]
        self.capture: Capture | None = None
        self.pinned: dict[int, int] = {}
        #: What the profiler was told.
        self.profiled: list[str] = []
        #: Whether what streams wait for may come from elsewhere.
        self.elsewhere: Callable[[], bool] = lambda: False
        self.runtime = SimpleNamespace(
            memcpyAsync=self._copy,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            profilerStart=lambda: self.profiled.append("start"),
            profilerStop=lambda: self.profiled.append("stop"),
            memsetAsync=self._set,
            getDeviceCount=lambda: 1,
            CUDARuntimeError=RuntimeError,
        )
        self.cuda = SimpleNamespace(
            Device=lambda index: nullcontext(),
            Stream=lambda non_blocking: Stream(self),
            Event=Event,
            MemoryPool=MemoryPool,
            alloc_pinned_memory=self._pinned,
            PinnedMemory=lambda nbytes: PinnedMemory(self._pinned(nbytes)),
            get_current_stream=self.get_current_stream,
            get_elapsed_time=self._elapsed,
            runtime=self.runtime,
        )

    def ndarray(self, shape: Sequence[int], dtype: Any, memptr: Any, strides: Any = None) -> Array:
        return Array(self, shape, dtype, memptr, strides)

    def from_dlpack(self, given: Any) -> Array:
        shape, dtype, data, strides = given.__dlpack__(stream=self.get_current_stream())
        return Array(self, shape, dtype, data, strides)

    def get_current_stream(self, device_id: int = 0) -> Stream:
        return self.current[-1]

    def until(self, reached: Callable[[], bool]) -> None:
        """Do work of streams drawn at random."""
        while not reached():
            assert self._one() or self.elsewhere(), "every stream waits for another one"

    def _one(self) -> bool:
        able = [stream for stream in self.streams if stream.work and stream.work[0][0]()]
        if able:
            self.random.choice(able).work.popleft()[1]()
        return bool(able)

    def some(self) -> None:
        """As much as a GPU may have done by now."""
        for _ in range(self.random.randrange(4)):
            self._one()

    def _pinned(self, nbytes: int) -> Pinned:
        made = Pinned(nbytes, np.uint8)
        made.fill(STALE)
        self.pinned[made.ctypes.data] = nbytes
        return made

    def _copy(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        """Of host memory that is not pinned CUDA has taken the bytes when the call returns."""
        is_pinned = any(start <= source < start + size for start, size in self.pinned.items())
        late = kind != self.runtime.memcpyHostToDevice or is_pinned
        taken = None if late else ctypes.string_at(source, nbytes)
        self.stream_of(stream).submit(lambda: ctypes.memmove(target, source if taken is None else taken, nbytes))

    def _elapsed(self, first: Event, second: Event) -> float:
        """A millisecond. CUDA has no answer before both are done."""
        assert first.recorded and second.recorded and first.done and second.done
        return 1.0

    def _set(self, target: int, value: int, nbytes: int, stream: int) -> None:
        self.stream_of(stream).submit(lambda: ctypes.memset(target, value, nbytes))

    def stream_of(self, ptr: int) -> Stream:
        """The stream that C functions are told so."""
        return next(stream for stream in self.streams if stream.ptr == ptr)


# ---- waits that are left out

RUNTIME = Path(singa_lite.runtime.__file__).parent
CALL = re.compile(r"\.(wait_event|record|synchronize)\(")

#: What happens on late streams in the order of a seed: AssertionError where values are wrong or nothing can go on, a
#: UserWarning, which tests turn into an error, where a step cannot be captured any more.
Scenario = Callable[[int], object]


def sites(*files: str) -> list[str]:
    """ "file:line" of each call in these modules of the runtime."""
    return [
        f"{file}:{number}"
        for file in files
        for number, line in enumerate((RUNTIME / file).read_text(encoding="utf-8").splitlines(), 1)
        if CALL.search(line)
    ]


def shows(site: str, scenarios: Iterable[Scenario], seeds: Iterable[int]) -> bool:
    """Whether one of the scenarios fails for one of the seeds with that call left out."""
    file, line = site.split(":")
    with patch.object(LateCupy, "without", (file, int(line))):
        return any(fails(scenario, seed) for scenario in scenarios for seed in seeds)


def fails(scenario: Scenario, seed: int) -> bool:
    try:
        scenario(seed)
    except (AssertionError, UserWarning):
        return True
    return False
