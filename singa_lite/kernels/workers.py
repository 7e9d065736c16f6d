"""Workers: threads of this process that share the pieces of one kernel call with the thread that makes it.

A call is cut into pieces, and has slots: places to work in, each with buffers of its own. Who has a slot takes one
piece after the other until none is left:

    caller    slot 0   | piece 0 | piece 2 | piece 3 | waits for whoever is still inside |
    worker    slot 1      | piece 1 |      piece 4      |

The caller does all of it where no worker comes: all are busy with another thread's call, or there are none in a child
process yet. So nothing waits for a worker to begin, and which one does a piece must make no difference to it.

Pieces should take some 100 microseconds and more, and what is between two calls of a library little: Python runs in one
thread at a time, and a thread that waits for it is woken in tens of microseconds.

An interrupt reaches the main thread alone. Whatever leaves `share`, pieces that nobody began are dropped, and those
that a worker began are awaited, so that none writes to memory that is another's by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import RLock, Thread

import numpy as np

from singa_lite.common.contexts import follow
from singa_lite.kernels.kernel_set import Launch

#: What is done in one slot: it takes the numbers of pieces, one after the other, and does each.
Work = Callable[[Iterator[int]], object]


class _Job:
    """One call. Its pieces are taken, and its slots closed, by calls that no other thread comes between."""

    def __init__(self, pieces: int, slots: Sequence[Work]) -> None:
        self._slots = slots
        self._left = deque(range(pieces))
        #: Of each worker's slot: held by who is in it. The caller takes them for good, so that nobody enters any more.
        self._locks = [RLock() for _ in slots[1:]]
        self._errors: list[BaseException] = []

    def work(self, slot: int) -> None:
        """Do pieces until none is left."""
        self._slots[slot](self._pieces())

    def _pieces(self) -> Iterator[int]:
        with suppress(IndexError):
            while True:
                yield self._left.popleft()

    def help(self, slot: int) -> None:
        """What a worker does. An error is kept for the caller, and nobody begins another piece."""
        lock = self._locks[slot - 1]
        if not self._left or not lock.acquire(blocking=False):
            return
        try:
            if self._left:
                self.work(slot)
        except BaseException as error:  # the caller raises it
            self._left.clear()
            self._errors.append(error)
        finally:
            lock.release()

    def close(self) -> None:
        """Wait until no worker is inside. It may be called again where an interrupt ended it.

        Further interrupts wait as well: the caller would give back memory to which a worker still writes.
        """
        self._left.clear()
        came: BaseException | None = None
        for lock in self._locks:
            while True:
                try:
                    lock.acquire()
                    break
                except BaseException as error:  # of a signal's handler
                    came = error
        if came is not None:
            raise came

    def raise_error(self) -> None:
        """Raise a worker's error."""
        if self._errors:
            raise self._errors[0]


class _Pool:
    """The workers of this process, and what they are asked to help with."""

    def __init__(self) -> None:
        self.after_fork()
        follow(self)

    def after_fork(self) -> None:
        """Begin anew: a child process has none of its parent's threads."""
        self._asked: SimpleQueue[tuple[_Job, int]] = SimpleQueue()
        self._threads: list[Thread] = []

    def ready(self, count: int) -> None:
        """Let there be so many workers; fewer where the system refuses a thread."""
        with suppress(RuntimeError):
            while len(self._threads) < count:
                made = Thread(target=_worker_loop, args=(self._asked,), name="singa_lite worker", daemon=True)
                made.start()
                self._threads.append(made)

    def ask(self, job: _Job, slot: int) -> None:
        """Some worker helps, as soon as one is free."""
        self._asked.put((job, slot))


def _worker_loop(asked: SimpleQueue[tuple[_Job, int]]) -> None:
    with np.errstate(all="ignore"):  # as the caller has it (`runtime/host.py`): each thread has a setting of its own
        while True:
            job, slot = asked.get()
            job.help(slot)
            del job  # and with it what its slots hold, while nothing is asked


_pool = _Pool()


def sharing(pieces: int, slots: Sequence[Work]) -> Launch:
    """A launch that does the pieces so."""
    _pool.ready(len(slots) - 1)
    return partial(share, pieces, slots)


def share(pieces: int, slots: Sequence[Work]) -> None:
    """Do the pieces, numbers from 0, each once, in any order, by the caller in slots[0] and by workers in the others.

    It returns when all are done. An error in a piece is raised here when nobody is at work any more; which pieces were
    done is unknown then.
    """
    job = _Job(pieces, slots)
    try:  # twice, as an interrupt may end the first at its first instruction
        try:
            _pool.ready(len(slots) - 1)
            for slot in range(1, min(len(slots), pieces)):
                _pool.ask(job, slot)
            job.work(0)
        finally:
            job.close()
    finally:
        job.close()
    job.raise_error()
