"""Communicator: what one process can ask of the others; waiting has a limit, and its error names who has not come."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn, Protocol

from singa_lite.common.array_types import Array
from singa_lite.common.errors import ParallelError


class Pending(Protocol):
    """Messages under way, of which each is from or to one rank."""

    def poll(self) -> bool:
        """Let them go on; whether all are through."""

    def late_ranks(self) -> list[int]:
        """The ranks whose messages are not through."""


class Polled(NamedTuple):
    """`Pending` of two functions."""

    poll: Callable[[], bool]
    late_ranks: Callable[[], list[int]]


#: What a process that is alone waits for.
ARRIVED = Polled(lambda: True, list)


class Communicator(ABC):
    """The processes of one job. rank: this one's number, 0 first; size: how many there are.

    Everything that waits is called by all ranks, in the same order.
    """

    rank: int
    size: int

    @abstractmethod
    def exchange(self, given: bytes) -> list[bytes]:
        """What every rank gave, by rank. ParallelError where one does not come within the time limit."""

    @abstractmethod
    def spread(self, sent: Sequence[Array], received: Sequence[Array], number: int) -> Pending:
        """Begin to send to each of the other ranks an array, and to receive one from each; both are given by rank.

        Arrays are of one axis, without gaps, and left alone until all is through; those of this rank are not used.
        number: that of these messages, and of no others that are under way.
        """

    @abstractmethod
    def wait(self, pending: Pending, doing: str) -> None:
        """Until all messages are through. ParallelError after the time limit, which names the ranks that are late."""

    @abstractmethod
    def abort(self, message: str, status: int = 1) -> NoReturn:
        """End all processes at once, with this status, after the message on stderr if there is any."""

    @property
    def local_rank(self) -> int:
        """This process's number among those of its machine, 0 first."""
        return self.rank

    def fail(self, why: str) -> None:  # noqa: B027  # who is alone tells nobody
        """Tell the others that this rank cannot go on: whoever waits for it, now or later, gets a RankFailedError."""

    def all_gather(self, given: bytes, doing: str) -> list[bytes]:
        """As `exchange`. doing: what for; ParallelError where other ranks are at something else."""
        label, found = doing.encode(), list[bytes]()
        for rank, each in enumerate(self.exchange(label + b"\0" + given)):
            text, _, value = each.partition(b"\0")
            if text != label:
                raise ParallelError(
                    f"rank {self.rank}: wanted the same calls in the same order on all ranks, received {doing!r} here, "
                    f"and {text.decode(errors='replace')!r} on rank {rank}"
                )
            found.append(value)
        return found

    def gathered(self, value: object, doing: str = "gathered()") -> list[object]:
        """What every rank gave, by rank. value: whatever can be pickled; doing: see `all_gather`."""
        return [pickle.loads(each) for each in self.all_gather(pickle.dumps(value), doing)]

    def collect(self, given: Array, places: Sequence[Array]) -> None:
        """Rank 0 receives what each rank gives into the places, by rank, of as many elements each; nobody else does.

        Arrays are of one axis, without gaps; places: of rank 0 alone. No sums are under way meanwhile.
        """
        nothing = given[:0]
        if self.rank == 0:
            places[0][...] = given
            sent, received = [nothing] * self.size, list(places)
        else:
            sent, received = [given if rank == 0 else nothing for rank in range(self.size)], [nothing] * self.size
        self.wait(self.spread(sent, received, 0), "what other ranks have of a file")

    def barrier(self) -> None:
        """Wait until all are here."""
        self.all_gather(b"", "barrier()")


class SingleProcess(Communicator):
    """One process, without any MPI."""

    rank = 0
    size = 1

    def exchange(self, given: bytes) -> list[bytes]:
        """What was given."""
        return [given]

    def spread(self, sent: Sequence[Array], received: Sequence[Array], number: int) -> Pending:
        """Nothing is sent."""
        return ARRIVED

    def wait(self, pending: Pending, doing: str) -> None:
        """Nothing to wait for."""

    def abort(self, message: str, status: int = 1) -> NoReturn:
        """End this process."""
        raise SystemExit(message or status)
