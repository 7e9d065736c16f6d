"""Small work is done by the caller's thread alone."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.onednn_kernels.library.library import load

#: Elements up to which one thread is as fast as several: waking and awaiting the others takes microseconds, and
#: milliseconds where they share their cores with other busy processes.
SMALL = 1 << 17


def count() -> int:
    """Threads that OpenMP would use now; 1 where the library uses other threads."""
    return _openmp()[0]()


@cache
def slots() -> int:
    """Threads that may share a call: `count` when first asked, as planning and binding must get the same answer."""
    return count()


@contextmanager
def thread_count(number: int = 1) -> Iterator[None]:
    """Primitives made inside run on so many threads: some keep the number that was set when they were made."""
    get, put = _openmp()
    before = get()
    try:
        put(number)
        yield
    finally:
        put(before)


def making_if(small: bool) -> AbstractContextManager[None]:
    """`thread_count` for small work."""
    return thread_count() if small else nullcontext()


def running(launch: Launch) -> Launch:
    """The launch, done by one thread."""
    get, put = _openmp()

    def run() -> None:
        before = get()
        try:
            put(1)
            launch()
        finally:
            put(before)

    return run


@cache
def _openmp() -> tuple[Callable[[], int], Callable[[int], object]]:
    """Functions that get and set OpenMP's number of threads; they do nothing where the library uses other threads."""
    library = c.CDLL(load().path)
    try:
        get, put = library.omp_get_max_threads, library.omp_set_num_threads
    except AttributeError:
        return (lambda: 1), (lambda _: None)
    get.argtypes, get.restype = (), c.c_int
    put.argtypes, put.restype = (c.c_int,), None
    return get, put
