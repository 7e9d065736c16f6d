"""Batches made ahead of the training step, by one thread, several or processes; and how long it waits for them."""

from __future__ import annotations

import pickle
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from contextlib import closing
from threading import Event
from typing import Generic, TypeVar, cast

from singa_lite.common.checks import integer, is_int
from singa_lite.common.errors import DataError
from singa_lite.common.notice import warn
from singa_lite.data import Processes

T = TypeVar("T")
Kept = TypeVar("Kept")
Job = TypeVar("Job")
Made = TypeVar("Made")

_END = object()
#: Seconds and share of the time that are worth a word.
_SECONDS, _SHARE = 5.0, 0.1


def prefetched(items: Iterable[T], count: int) -> Generator[T, None, None]:
    """The same items in the same order, `count` of them made before they are asked for; with 0 no thread is used.

    An error in making an item is raised when that item is asked for. Closing the generator waits for the item that is
    being made, and ends the thread.
    """
    if count == 0:
        yield from items
        return
    left, ended = iter(items), Event()

    def next_item() -> T | object:
        item = next(left, _END)
        if item is _END:
            ended.set()
        return item

    with ThreadPoolExecutor(1, "prefetch") as thread:
        made = deque([thread.submit(next_item)])
        try:
            while len(made) < count and not ended.is_set():  # a count may be larger than any number of items
                made.append(thread.submit(next_item))
            while (item := made.popleft().result()) is not _END:
                made.append(thread.submit(next_item))
                yield item  # type: ignore[misc]  # next gives T but for the end
                del item  # before the next one is waited for
        finally:
            thread.shutdown(cancel_futures=True)


def worked(
    work: Callable[[Job], T], items: Iterable[tuple[Kept, Job]], workers: Executor, count: int
) -> Generator[tuple[Kept, T], None, None]:
    """(kept, work(job)) of each (kept, job), in their order: items are made by a thread, the work is the workers'.

    count: how many are begun before they are asked for, at least 1. Errors and closing are as for `prefetched`.
    """
    begun = ((kept, workers.submit(work, job)) for kept, job in items)
    with closing(prefetched(begun, count)) as all_begun:
        for kept, future in all_begun:
            yield kept, future.result()
            del kept, future  # before the next one is waited for


def checked_workers(where: str, given: object) -> int | Processes:
    """How many threads, or processes. TypeError and ValueError for anything else."""
    if isinstance(given, Processes):
        return given
    if is_int(given):
        return integer(where, given, 0)
    raise TypeError(f"{where}: wanted a number of threads, or data.Processes(number), received {given!r:.100}")


class Crew(Generic[Job, Made]):
    """Does one kind of work for one data set. workers: none (0), so many threads, or processes, kept until `close`."""

    def __init__(self, where: str, work: Callable[[Job], Made], workers: int | Processes) -> None:
        self._where = where
        self._work = work
        self._workers = workers
        self._processes: Executor | None = None

    def map_jobs(self, items: Iterable[tuple[Kept, Job]], prefetch: int) -> Generator[tuple[Kept, Made], None, None]:
        """(kept, work(job)) of each (kept, job), in their order; `prefetch` ahead, with workers one more than these.

        DataError where a process died.
        """
        if self._workers == 0:
            yield from prefetched(((kept, self._work(job)) for kept, job in items), prefetch)
            return
        count = self._workers.count if isinstance(self._workers, Processes) else self._workers
        executor, work = self._executor(count)
        try:
            yield from worked(work, items, executor, prefetch or count + 1)
        except BrokenExecutor as error:
            self.close()
            raise DataError(
                f"{self._where} workers: wanted {self._workers} to make all batches, received none from one that died: "
                "it was killed, or had too little memory, or could not import the script, whose own part is to stand "
                "under `if __name__ == '__main__':`"
            ) from error
        finally:
            if executor is not self._processes:
                executor.shutdown(cancel_futures=True)

    def _executor(self, count: int) -> tuple[Executor, Callable[[Job], Made]]:
        """Threads, or the processes that are kept, and what they do with a job."""
        if not isinstance(self._workers, Processes):
            return ThreadPoolExecutor(count, "transform"), self._work
        if self._processes is None:
            self._processes = _started(self._where, count, self._work)
        return self._processes, cast("Callable[[Job], Made]", _do)

    def close(self) -> None:
        """End the processes, after what they are at."""
        if self._processes is not None:
            self._processes.shutdown(cancel_futures=True)
            self._processes = None


def _started(where: str, count: int, work: object) -> Executor:
    """Processes that know what to do. They are not forked: threads and open HDF5 files would be halfway there.

    TypeError for what cannot be pickled.
    """
    import multiprocessing  # here, as few scripts need it
    from concurrent.futures import ProcessPoolExecutor

    try:
        text = pickle.dumps(work)
    except Exception as error:  # PicklingError, AttributeError, TypeError, or its own
        raise TypeError(
            f"{where} workers: wanted a transform and data that can be pickled, so that processes get them, such as a "
            f"function of a module, received {error!r}"
        ) from error
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin, (text,))


#: In a worker process: what it is to do with each job.
_work: list[Callable[[object], object]] = []


def _begin(text: bytes) -> None:
    """In a worker process, before its first job. Ctrl-C in a terminal is for the training alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _work[:] = [pickle.loads(text)]


def _do(job: object) -> object:
    """In a worker process: one job."""
    return _work[0](job)


class Waiting:
    """The waiting of one run of `fit`. seconds: waited for batches so far; of: out of so many. tells: whether to warn,
    once.

    The first batch of an epoch is waited for as long as anything takes to begin, so it is no reason to warn.
    """

    def __init__(self, tells: bool) -> None:
        self.seconds = 0.0
        self.of = 0.0
        self._tells = tells
        self._beginning = 0.0

    def timed(self, batches: Iterator[T]) -> Iterator[T]:
        """The same batches, each waited for, and then used."""
        asked = time.perf_counter()
        is_first = True
        while (batch := next(batches, _END)) is not _END:
            waited = time.perf_counter() - asked
            self.seconds += waited
            self._beginning += waited if is_first else 0.0
            is_first = False
            yield batch  # type: ignore[misc]  # next gives T but for the end
            del batch  # before the next one is waited for
            self.of += time.perf_counter() - asked
            asked = time.perf_counter()
            self._warn_if_slow()

    def _warn_if_slow(self) -> None:
        lost = self.seconds - self._beginning
        if self._tells and lost >= _SECONDS and lost >= _SHARE * self.of:
            self._tells = False
            warn(
                f"fit: the data come slower than the steps: {lost / self.of:.0%} of the time so far, {lost:.1f} s, "
                "went by waiting for batches; prefetch=, and workers= or more of them, make them beside the steps"
            )
