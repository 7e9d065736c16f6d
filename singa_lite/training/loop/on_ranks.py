"""What a process that trains does with the others: who writes, what all gave, and which processes they are."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from typing import TypeVar

from singa_lite.common.errors import RankFailedError
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.training.loop.evaluation import Trainable
from singa_lite.training.loop.rank_batches import gather_values

T = TypeVar("T")


class OnRanks:
    """One of the processes that train a net together, or the only one."""

    net: Trainable

    @property
    def ranks(self) -> DataParallel | None:
        """The processes that train the net together; None where this one is alone."""
        ranks = self.net.parallel
        return None if ranks is None or ranks.size == 1 else ranks

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files and prints: rank 0, or one that is alone."""
        return self.ranks is None or self.ranks.rank == 0

    def any(self, given: bool) -> bool:
        """Whether it is true on any rank. All ranks must ask, in the same order: a callback that decides by what only
        its own process knows, such as the time, asks so, and then does the same on all of them.
        """
        return any(self.gathered(bool(given), "Training.any"))

    def gathered(self, value: T, doing: str = "Training.gathered") -> list[T]:
        """What every rank gave, by rank; of one process alone a list of one. All ranks must ask, in the same order."""
        return gather_values(self.ranks, value, doing)

    def from_first(self, work: Callable[[], T], doing: str) -> T:
        """What `work` gives on rank 0, which alone does it. RankFailedError on the others where it fails."""
        made, failure = list[T](), None
        try:
            made = [work()] if self.is_first else []
        except Exception as error:
            failure = error
        results = self.gathered((made, "" if failure is None else f"{type(failure).__name__}: {failure}"), doing)
        if failure is not None:
            raise failure
        found, text = results[0]
        if text:
            raise RankFailedError(f"{doing}: rank 0 of {len(results)} failed: {text}")
        return found[0]


#: Most processes that are named.
_MOST = 16


def own_process() -> tuple[str, int]:
    """The machine's name, and the number of this process."""
    return platform.node(), os.getpid()


def in_words(processes: Sequence[tuple[str, int]]) -> str:
    """All of them by rank, as far as there are few."""
    hosts = list(dict.fromkeys(host for host, _ in processes))
    named = [
        f"rank {rank} is {number}" + (f" on {host}" if len(hosts) > 1 else "")
        for rank, (host, number) in enumerate(processes[:_MOST])
    ]
    more = ", ..." if len(processes) > _MOST else ""
    return f"training by {len(processes)} processes on {', '.join(hosts[:_MOST])}: {', '.join(named)}{more}"
