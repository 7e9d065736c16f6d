"""Nesting: room on Python's stack for layers that hold layers, hundreds of them within each other."""

from __future__ import annotations

import sys
from itertools import accumulate

#: Calls of Python's own limit that are left to the caller, and at most so many for each layer: a copy takes thirteen.
_CALLERS, _CALLS = 1000, 20
#: Layers within each other that room is made for; beyond that Python says RecursionError.
_MOST = 1000


def make_room(depth: int) -> None:
    """Raise Python's recursion limit to what `depth` objects within each other want; it never falls."""
    wanted = _CALLERS + _CALLS * min(depth, _MOST)
    if wanted > sys.getrecursionlimit() and depth > _CALLERS // (4 * _CALLS):
        sys.setrecursionlimit(wanted)


def depth_of(text: str) -> int:
    """How many lists and objects of a text of JSON lie within each other at most."""
    steps = ((letter in "[{") - (letter in "]}") for letter in text)
    return max(accumulate(steps, initial=0))
