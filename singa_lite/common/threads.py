"""The number of threads under the kernels: one for NumPy's BLAS and for the OpenMP of oneDNN.

The number is `set_threads`, else SINGA_LITE_THREADS, else OMP_NUM_THREADS, else one for each usable core.

OpenMP keeps a number for each thread that calls it, and oneDNN makes its code for the number at that time. So it is
fixed when the library is loaded, and OpenMP starts with it in every thread. Where another package had loaded the same
OpenMP before, `settle` sets it for each thread that runs an operation.

Two pools of threads that wait actively take the cores from each other. OpenBLAS' threads wait so for 2**26 cycles after
each product, and no call makes them stop: products by NumPy between the primitives of a LeNet step made it take 25 ms
instead of 6.4. So beside OpenMP the kernels call BLAS on one thread (`on_one_blas_thread`).

OpenMP's own threads wait actively too, for 300,000 turns in libgomp, which is 11 ms on the machine below, and meanwhile
the thread that they wait for does not get the core if another process has the other one. 1,000 turns, some 40
microseconds, are about what it costs to sleep and be woken, and libgomp starts with these (GOMP_SPINCOUNT) unless
GOMP_SPINCOUNT or OMP_WAIT_POLICY are set, or another package has loaded it before. Mean milliseconds of a LeNet step,
batch 64, on two cores of an AMD EPYC (Zen 5), alone, and beside a process that is always busy:

    300,000 turns   6.4  22
    100,000 turns   6.0  14
     10,000 turns   6.0   9
      1,000 turns   6.0   7
          0 turns   7.7   9
    one thread      6.5   7

With nothing else running at all, 1,000 turns cost such a step 5 %.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from threading import RLock, get_ident
from typing import Protocol

from singa_lite.common.checks import integer
from singa_lite.common.contexts import follow
from singa_lite.common.errors import DeviceError
from singa_lite.common.machine import cores, usable_cores

#: A larger number is a mistake, and OpenMP ends the process where the system refuses a thread.
MOST = 4096
SPINS = 1000
WAITS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")

Launch = Callable[[], object]


class BlasLibrary(Protocol):
    """A loaded BLAS library, as threadpoolctl's controller of it."""

    def get_num_threads(self) -> int: ...

    def set_num_threads(self, num_threads: int) -> object: ...

    def info(self) -> Mapping[str, object]: ...


class _Setting:
    """number: what `set_threads` was given, or what OpenMP started with; openmp: sets it for the calling thread."""

    number: int | None = None
    openmp: Callable[[int], object] | None = None


_setting = _Setting()
#: Threads of each operation of those that run at the same time; 0: they run one after the other, and have all.
_share: ContextVar[int] = ContextVar("share", default=0)


def threads() -> int:
    """Returns how many threads an operation may use. ValueError for a SINGA_LITE_THREADS that is no whole number from
    1.

    >>> device.threads() >= 1
    True
    """
    return _setting.number or _thread_setting() or _of_openmp() or usable_cores()


def set_threads(number: int) -> None:
    """Sets how many threads every library may use, 1 or more.

    DeviceError for another number than the present one once oneDNN is loaded, which the first device with its kernels
    does: its code is made for a number.

    >>> device.set_threads(device.threads())  # before the first device: any number
    """
    number = _checked("set_threads", number)
    if _setting.openmp is not None and number != threads():
        raise DeviceError(
            f"set_threads: wanted {threads()}, which oneDNN was loaded with, received {number}; set another number "
            "before the first device, tensor or net, or by SINGA_LITE_THREADS"
        )
    _setting.number = number
    _limit_blas(number)


def start() -> None:
    """Sets the number in NumPy's BLAS, if it differs from the one that BLAS starts with."""
    has_own_setting = any(name in os.environ for name in BLAS_VARIABLES)
    if _thread_setting() or (not has_own_setting and threads() != cores()):
        _limit_blas(threads())


def _thread_setting() -> int | None:
    text = os.environ.get("SINGA_LITE_THREADS", "")
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"SINGA_LITE_THREADS: wanted a whole number of at least 1, received {text!r}") from None
    return _checked("SINGA_LITE_THREADS", number)


def _checked(where: str, number: float) -> int:
    number = integer(where, number, 1)
    if number > MOST:
        raise ValueError(f"{where}: wanted at most {MOST} threads, received {number}")
    return number


def _of_openmp() -> int | None:
    """OMP_NUM_THREADS; "4,2" is 4 in the outermost region. OpenMP itself reports a value that is wrong."""
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(text) or None if text.isdecimal() else None


# ---- OpenMP


@contextmanager
def openmp_starts() -> Iterator[None]:
    """An OpenMP library that is loaded inside starts with the number of threads, and waits briefly.

    It reads the environment when it is loaded. What the user has set stays, and nothing stays that was not set.
    """
    added = {} if any(name in os.environ for name in WAITS) else {"GOMP_SPINCOUNT": str(SPINS)}
    if threads() != _of_openmp():
        added["OMP_NUM_THREADS"] = str(threads())
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def use_openmp_of(path: str) -> None:
    """Fixes the number from now on. path: of a loaded library; one that uses no OpenMP changes nothing."""
    library = ctypes.CDLL(path)
    try:
        _setting.openmp = library.omp_set_num_threads  # looked up in the libraries that it was linked to
    except AttributeError:
        return
    _setting.number = threads()
    settle()
    if hasattr(os, "register_at_fork"):
        _ready_to_fork(library)


def _ready_to_fork(library: ctypes.CDLL) -> None:
    """Ends the forking thread's OpenMP threads before each fork; the next operation makes new ones.

    A child process has none of its parent's threads, but libgomp would wait for them for ever.
    """
    try:
        pause = library.omp_pause_resource_all
    except AttributeError:  # another OpenMP, or one from before 2019
        return
    os.register_at_fork(before=partial(pause, 1))  # 1: soft, numbers that were set stay


def settle() -> None:
    """Sets the number for the calling thread in OpenMP, once an OpenMP library is loaded."""
    if _setting.openmp is not None:  # each time, as an interrupt may have left another number, see `alone.running`
        _setting.openmp(threads())


def share() -> int:
    """Threads that kernels are made for inside `sharing`; 0 outside."""
    return _share.get()


@contextmanager
def sharing(number: int) -> Iterator[None]:
    """Kernels that are made, asked or run inside by this thread use so many threads; 0: as many as ever."""
    token = _share.set(number)
    try:
        if number and _setting.openmp is not None:
            _setting.openmp(number)
        yield
    finally:
        _share.reset(token)
        settle()


def with_share(launch: Launch, number: int) -> Launch:
    """The launch, which was made inside `sharing`, as it runs by itself."""

    def run() -> None:
        with sharing(number):
            launch()

    return run


def in_lane(launches: Sequence[Launch], number: int) -> None:
    """Run launches that were made inside `sharing`, by a thread beside others that do the same with theirs."""
    openmp = _setting.openmp
    if openmp is None:
        with _one_blas_thread:
            for launch in launches:
                launch()
        return
    openmp(number)
    try:
        for launch in launches:
            launch()
    finally:
        openmp(threads())


# ---- BLAS


@cache
def blas() -> tuple[BlasLibrary, ...]:
    """The loaded BLAS libraries; NumPy's is always loaded."""
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


def _limit_blas(number: int) -> None:
    for library in blas():
        library.set_num_threads(number)


class _OneThread:
    """Inside, BLAS has one thread. Several threads may be inside at once, each of them once.

    Where an interrupt kept a thread from leaving, its next turn inside ends that as well.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._inside: set[int] = set()
        self._before: list[int] = []

    def after_fork(self) -> None:
        """In a child process, where the other threads are not: none of them is inside."""
        self._lock = RLock()
        was_inside, self._inside = self._inside, self._inside & {get_ident()}
        if was_inside and not self._inside:
            self._restore()

    def _restore(self) -> None:
        for library, number in zip(blas(), self._before, strict=True):
            library.set_num_threads(number)

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = [library.get_num_threads() for library in blas()]
            self._inside.add(get_ident())
            _limit_blas(1)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._inside == {get_ident()}:
                self._restore()
            self._inside.discard(get_ident())


_one_blas_thread = _OneThread()
follow(_one_blas_thread)


def on_one_blas_thread(launch: Launch) -> Launch:
    """The launch, with one thread for BLAS while it runs."""

    def run() -> None:
        with _one_blas_thread:
            launch()

    return run
