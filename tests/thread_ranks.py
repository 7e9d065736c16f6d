"""Ranks that are threads of one process: what training asks of others, without any MPI."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any


class ThreadRanks:
    """One rank of several. shared: the barrier and the values of all."""

    def __init__(self, rank: int, size: int, shared: tuple[Barrier, list[Any]]) -> None:
        self.rank, self.size = rank, size
        self._barrier, self._values = shared

    def gathered(self, value: object, doing: str = "") -> list[object]:
        """What every rank gave, by rank."""
        self._values[self.rank] = value
        self._barrier.wait(30)
        found = list(self._values)
        self._barrier.wait(30)
        return found


def on_ranks(size: int, work: Callable[[ThreadRanks], Any]) -> list[Any]:
    """What `work` gives on each rank; an exception is given in the place of a result."""
    shared = Barrier(size), [None] * size

    def one(rank: int) -> Any:
        try:
            return work(ThreadRanks(rank, size, shared))
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(one, range(size)))
