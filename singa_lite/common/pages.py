"""Pages of this process that nothing in it wants: the system has them back, so that they count no longer as its memory.

This is done on Linux, and nothing elsewhere.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

_MAPS = Path("/proc/self/maps")
#: Libraries that are loaded, whose code may go.
_libraries: set[str] = set()


def drop(begin: int, nbytes: int) -> None:
    """Hands back the whole pages within some bytes, whose values are lost: they are zeros when they are next used."""
    page = mmap.PAGESIZE
    first, end = -(-begin // page) * page, (begin + nbytes) // page * page
    if end > first and sys.platform.startswith("linux"):
        _advise()(first, end - first, mmap.MADV_DONTNEED)


def may_drop_code(library: str | None) -> None:
    """Lets `drop_code` hand back the code of a library, the path of its file, which must be loaded wholly."""
    if library is not None:
        _libraries.add(os.path.realpath(library))


def drop_code() -> None:
    """Hands back the code of the libraries that allow it. Much of it runs once, as while they are loaded or make code
    of their own. What is wanted again is mapped again, out of the system's memory of files.
    """
    for begin, end in _code() if sys.platform.startswith("linux") else ():
        _advise()(begin, end - begin, mmap.MADV_DONTNEED)


def _code() -> Iterator[tuple[int, int]]:
    """Where such code begins and ends: it is never written."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        place, access, *_, path = line.split(maxsplit=5)
        if access == "r-xp" and path in _libraries:
            begin, _, end = place.partition("-")
            yield int(begin, 16), int(end, 16)


@cache
def _advise() -> Callable[[int, int, int], int]:
    """madvise of C's library, whose errors, as for locked pages, leave all as it is."""
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function
