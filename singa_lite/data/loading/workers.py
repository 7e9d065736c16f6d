"""Workers that make batches ahead of the training step: threads, or processes."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from typing import Generic, TypeVar, cast

from singa_lite.common.checks import integer, is_int
from singa_lite.common.errors import DataError
from singa_lite.data import Processes
from singa_lite.data.loading.prefetch import prefetched, worked

Job = TypeVar("Job")
Made = TypeVar("Made")
Kept = TypeVar("Kept")


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

    def through(self, items: Iterable[tuple[Kept, Job]], prefetch: int) -> Generator[tuple[Kept, Made], None, None]:
        """(kept, work(job)) of each (kept, job), in their order; `prefetch` ahead, with workers one more than these.

        DataError where a process died.
        """
        if self._workers == 0:
            return prefetched(((kept, self._work(job)) for kept, job in items), prefetch)
        if isinstance(self._workers, Processes):
            return self._by_processes(items, prefetch or self._workers.count + 1)
        return self._by_threads(items, self._workers, prefetch or self._workers + 1)

    def close(self) -> None:
        """End the processes, after what they are at."""
        if self._processes is not None:
            self._processes.shutdown(cancel_futures=True)
            self._processes = None

    def _by_threads(
        self, items: Iterable[tuple[Kept, Job]], count: int, begun: int
    ) -> Generator[tuple[Kept, Made], None, None]:
        with ThreadPoolExecutor(count, "transform") as threads:
            try:
                yield from worked(self._work, items, threads, begun)
            finally:
                threads.shutdown(cancel_futures=True)

    def _by_processes(self, items: Iterable[tuple[Kept, Job]], begun: int) -> Generator[tuple[Kept, Made], None, None]:
        if self._processes is None and isinstance(self._workers, Processes):
            self._processes = _started(self._where, self._workers.count, self._work)
        if self._processes is None:
            raise RuntimeError("wanted worker processes, received threads")
        do = cast("Callable[[Job], Made]", _do)
        try:
            yield from worked(do, items, self._processes, begun)
        except BrokenExecutor as error:
            self.close()
            raise DataError(
                f"{self._where} workers: wanted {self._workers} to make all batches, received none from one that died: "
                "it was killed, or had too little memory, or could not import the script, whose own part is to stand "
                "under `if __name__ == '__main__':`"
            ) from error


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
