"""KeyboardInterrupt at a chosen line or instruction of singa_lite, by a tracer.

How strict this is: the tracer raises before any line (or, with `opcodes`, any instruction) of a file of singa_lite
runs, also the first line of `finally` and `except`, of `__enter__` and `__exit__`, and the `with` line again at the
end of its block, where it leaves even a lock of C's as it is. Python itself notices Ctrl-C at fewer places: where a
function begins, after calls, and where loops turn. Files of the standard library and C are not interrupted inside.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import singa_lite
from singa_lite import layers, snapshots
from singa_lite.common.contexts import raise_ignored

FOLDERS = tuple(str(Path(module.__file__).parent) for module in (singa_lite, layers, snapshots))


class Place:
    """Where an interrupt came: file and line, and which of all events it was."""

    def __init__(self, number: int, frame: FrameType) -> None:
        self.number = number
        self.file = Path(frame.f_code.co_filename).name
        self.function, self.line = frame.f_code.co_qualname, frame.f_lineno

    def __repr__(self) -> str:
        return f"event {self.number}: {self.file}:{self.line} in {self.function}"


class Tracer:
    """Counts events, and raises at number `at` (-1: at none). places: {place in the code: numbers of its events}."""

    def __init__(self, at: int = -1, opcodes: bool = False) -> None:
        self.at = at
        self.opcodes = opcodes
        self.count = 0
        # CPython 3.11 calls what it holds no reference to: a bound method made for the call alone is freed under its
        # hands when it raises, which showed as aborts and bus errors much later, with PYTHONMALLOC=debug at once.
        self._kept = self._enter, self._within
        self.places: dict[tuple[Any, int], list[int]] = {}
        self.place: Place | None = None

    def run(self, work: Callable[[], Any]) -> bool:
        """Do the work; whether an interrupt came out of it, one in its last destructors too, which Python ignores.

        The garbage collector rests meanwhile: finalizers that it calls would be counted, one time and not the other.
        """
        trace, collects = sys.gettrace(), gc.isenabled()
        gc.collect()
        gc.disable()
        raise_ignored()  # which sees to it that the work's are noted
        try:
            sys.settrace(self._kept[0])
            work()
            sys.settrace(trace)
            raise_ignored()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(trace)
            if collects:
                gc.enable()
        return False

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(FOLDERS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = self.opcodes, not self.opcodes
        return self._kept[1]

    def _within(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "opcode"):
            if self.at < 0:
                place = frame.f_code, frame.f_lasti if self.opcodes else frame.f_lineno
                self.places.setdefault(place, []).append(self.count)
            self.count += 1
            if self.count - 1 == self.at:
                self.place = Place(self.at, frame)
                raise KeyboardInterrupt(repr(self.place))
        return self._kept[1]
