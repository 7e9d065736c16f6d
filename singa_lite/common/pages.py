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

_PROCESS = Path("/proc/self")


def drop(begin: int, nbytes: int) -> None:
    """Hands back the whole pages within some bytes, whose values are lost: they are zeros when they are next used."""
    if sys.platform.startswith("linux"):
        _advise_within(begin, nbytes, mmap.MADV_DONTNEED)


def set_apart(begin: int, nbytes: int) -> None:
    """Keeps the whole pages of a mapped file within some bytes out of memory while only what lies beside them is read.

    The system maps 16 pages at a time, but none beyond a span of the file that is read in another manner.
    """
    if sys.platform.startswith("linux"):
        _advise_within(begin, nbytes, mmap.MADV_RANDOM)


def _advise_within(begin: int, nbytes: int, advice: int) -> None:
    page = mmap.PAGESIZE
    first, end = -(-begin // page) * page, (begin + nbytes) // page * page
    if end > first:
        _advise()(first, end - first, advice)


def may_drop_code(library: str | None) -> None:
    """Lets `drop_code` hand back the code of a library, the path of its file, which must be loaded wholly."""
    if library is not None:
        _libraries.add(os.path.realpath(library))


def drop_code() -> None:
    """Hands back the code of the libraries that allow it. Much of it runs once, as while they are loaded or make code
    of their own. What is wanted again is mapped again, out of the system's memory of files.
    """
    for place, path in _code():
        if path in _libraries:
            begin, end = (int(each, 16) for each in place.split("-"))
            _advise()(begin, end - begin, mmap.MADV_DONTNEED)


def _code() -> Iterator[tuple[str, str]]:
    """Where code of a file lies, which is never written, and of which file. Nothing while a debugger writes to it."""
    try:
        lines, status = ((_PROCESS / name).read_text() for name in ("maps", "status"))
    except OSError:
        return
    if "TracerPid:\t0\n" not in status:
        return
    for line in lines.splitlines():
        place, access, *_, path = line.split(maxsplit=5)
        if access == "r-xp" and path.startswith("/"):
            yield place, path


#: Those whose code may go: at first those that were loaded before this package.
_libraries = {path for _, path in _code()}


@cache
def _advise() -> Callable[[int, int, int], int]:
    """madvise of C's library, whose errors, as for locked pages, leave all as it is."""
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function
