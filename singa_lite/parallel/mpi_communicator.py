"""MpiCommunicator: the processes that mpiexec has started, by mpi4py; messages from rank to rank that are polled."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import ParallelError, RankFailedError
from singa_lite.common.terminal import write_line
from singa_lite.parallel.communicator import Communicator, Pending

#: Tags of messages: bytes of an exchange, the text of a rank that has failed, and, from there on, arrays by their
#: number. Every MPI has 32,767.
EXCHANGED, FAILED, PART, TAGS = 1, 2, 1024, 16384
#: How often a wait polls before it lets other processes have the core between two polls, and for how long then.
SPINS, PAUSE = 200, 50e-6
#: Bytes of the text of a rank that has failed: few enough to go without whoever sends it staying for that.
MOST_TEXT = 2000


class Messages:
    """Requests of MPI, each with the rank that it is from or to. Whoever polls lets all of them go on."""

    def __init__(self, mpi: Any, requests: Sequence[Any], ranks: Sequence[int]) -> None:
        self._mpi = mpi
        self._requests = list(requests)
        self._ranks = list(ranks)
        self._through = not requests

    def poll(self) -> bool:
        """Let them go on; whether all are through."""
        self._through = self._through or self._mpi.Request.Testall(self._requests)
        return self._through

    def late_ranks(self) -> list[int]:
        """The ranks whose messages are not through."""
        pairs = zip(self._requests, self._ranks, strict=True)
        return [] if self._through else sorted({rank for request, rank in pairs if not request.Test()})


class MpiCommunicator(Communicator):
    """A communicator over MPI. mpi: the module mpi4py.MPI; timeout: seconds that a wait may take.

    `connect` comes before all else.
    """

    def __init__(self, mpi: Any, timeout: float) -> None:
        self._mpi = mpi
        self.rank, self.size = int(mpi.COMM_WORLD.Get_rank()), int(mpi.COMM_WORLD.Get_size())
        self.timeout = timeout
        #: Called while something is waited for: whatever else is under way goes on.
        self.meanwhile: Callable[[], object] = lambda: None
        self._status = mpi.Status()
        self._failed: str | None = None
        self._sent: list[tuple[Array, Any]] = []  # texts under way, and their requests
        self._comm: Any = None

    def connect(self) -> None:
        """All ranks call it. ParallelError where one does not within the time limit: MPI itself would wait for it."""
        self._wait_for_all()
        self._comm = self._mpi.COMM_WORLD.Dup()  # so that messages of the script's own are not taken for these

    def _wait_for_all(self) -> None:
        world, others = self._mpi.COMM_WORLD, [rank for rank in range(self.size) if rank != self.rank]
        tag = world.Get_attr(self._mpi.TAG_UB)  # which no script counts up to
        words = np.zeros((self.size, 2), np.uint8)
        coming = [world.Irecv(words[rank, :1], rank, tag) for rank in others]
        going = [world.Isend(words[rank, 1:], rank, tag) for rank in others]
        self.wait(Messages(self._mpi, coming + going, others + others), "parallel.mpi() to be called by all ranks")

    @cached_property
    def local_rank(self) -> int:
        """By the memory that processes share; all ranks ask for it together."""
        here = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED, self.rank)
        found = int(here.Get_rank())
        here.Free()
        return found

    def exchange(self, given: bytes) -> list[bytes]:
        """What every rank gave, by rank."""
        comm = self._comm
        sent = np.frombuffer(given, np.uint8)
        others = [rank for rank in range(self.size) if rank != self.rank]
        sending = Messages(self._mpi, [comm.Isend(sent, rank, EXCHANGED) for rank in others], others)
        found = {self.rank: given}

        def received() -> bool:
            for rank in others:
                if rank not in found and (message := comm.Improbe(rank, EXCHANGED, status := self._mpi.Status())):
                    place = np.empty(status.Get_count(self._mpi.BYTE), np.uint8)
                    message.Recv(place)
                    found[rank] = place.tobytes()
            return sending.poll() and len(found) == self.size

        self._wait_until(received, lambda: [r for r in others if r not in found] or sending.late_ranks(), "to be met")
        return [found[rank] for rank in range(self.size)]

    def fail(self, why: str) -> None:
        """Tell the others, who look for it while they wait."""
        text = np.frombuffer(why.encode()[:MOST_TEXT], np.uint8)
        self._sent += [(text, self._comm.Isend(text, rank, FAILED)) for rank in range(self.size) if rank != self.rank]

    def _check_failed(self) -> None:
        """RankFailedError where one has failed."""
        if self._comm is None:  # nobody can tell yet
            return
        if self._failed is None and (message := self._comm.Improbe(self._mpi.ANY_SOURCE, FAILED, self._status)):
            text = np.empty(self._status.Get_count(self._mpi.BYTE), np.uint8)
            message.Recv(text)
            self._failed = (
                f"rank {self._status.Get_source()} of {self.size} failed: {text.tobytes().decode(errors='replace')}"
            )
        if self._failed is not None:
            raise RankFailedError(self._failed)

    def spread(self, sent: Sequence[Array], received: Sequence[Array], number: int) -> Pending:
        """Begin to send an array to each of the other ranks, and to receive one from each."""
        others = [(self.rank + step) % self.size for step in range(1, self.size)]
        comm, tag = self._comm, PART + number % TAGS
        coming = [(comm.Irecv(received[rank], rank, tag), rank) for rank in others if received[rank].size]
        going = [(comm.Isend(sent[rank], rank, tag), rank) for rank in others if sent[rank].size]
        return Messages(self._mpi, [one for one, _ in coming + going], [rank for _, rank in coming + going])

    def wait(self, pending: Pending, doing: str) -> None:
        """Until all messages are through."""
        self._wait_until(pending.poll, pending.late_ranks, doing)

    def abort(self, message: str, status: int = 1) -> NoReturn:
        """End all processes at once."""
        if message:
            write_line(message, sys.stderr)
        self._mpi.COMM_WORLD.Abort(status)
        raise SystemExit(status)

    def _wait_until(self, done: Callable[[], bool], late: Callable[[], list[int]], doing: str) -> None:
        spins, end = 0, time.monotonic() + self.timeout
        while not done():
            self.meanwhile()
            spins += 1
            if spins < SPINS:
                continue
            self._check_failed()
            time.sleep(PAUSE)
            if time.monotonic() > end:
                raise ParallelError(
                    f"rank {self.rank}: wanted {doing} within {self.timeout:g} s, received nothing from rank "
                    f"{', '.join(map(str, late()))}: it has ended, hangs, or does another step; a longer limit is "
                    "parallel.mpi(timeout=)"
                )
