"""Fences for checked mode: bytes beside those that an operation may write, which must be the same after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import OverrunError

#: Bytes looked at on each side: a cache line, and the widest vector that a kernel writes.
FENCE = 64

Span = tuple[int, int]


def guard_spans(written: Iterable[Span], end: int) -> list[Span]:
    """The bytes, (start, stop), on both sides of what is written in bytes 0 to `end`, none of which is written."""
    found: list[Span] = []
    reached = 0
    for start, stop in sorted(span for span in written if span[0] < span[1]):
        if start > reached:
            found.append((max(reached, start - FENCE), start))
            if reached:
                found.append((reached, min(start, reached + FENCE)))
        reached = max(reached, stop)
    if 0 < reached < end:
        found.append((reached, min(end, reached + FENCE)))
    return found


class Fence:
    """Notes bytes before an operation, and looks at them after it.

    name: of the operation, for the OverrunError. watched: the bytes, uint8.
    """

    def __init__(self, name: str, watched: Sequence[Array]) -> None:
        self._name = name
        self._watched = watched
        self._noted = [np.empty_like(array) for array in watched]

    def note(self) -> None:
        """Before the operation."""
        for noted, array in zip(self._noted, self._watched, strict=True):
            np.copyto(noted, array)

    def check(self) -> None:
        """After it."""
        for noted, array in zip(self._noted, self._watched, strict=True):
            changed = np.flatnonzero(noted != array)
            if changed.size:
                raise OverrunError(
                    f"{self._name}: wanted it to write its outputs and its scratch alone, received other values in "
                    f"{changed.size} bytes beside them"
                )
