"""Pretended: a communicator of processes that are not there, by which a step of many is recorded and planned on one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from singa_lite.common.array_types import Array
from singa_lite.common.errors import ParallelError
from singa_lite.parallel.communicator import Communicator, Pending


class Pretended(Communicator):
    """Rank 0 of so many. Plans can be made with it; ParallelError for all that would wait for the others."""

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def exchange(self, given: bytes) -> list[bytes]:
        """There is nobody."""
        raise self._refused()

    def spread(self, sent: Sequence[Array], received: Sequence[Array], number: int) -> Pending:
        """There is nobody."""
        raise self._refused()

    def wait(self, pending: Pending, doing: str) -> None:
        """There is nobody."""
        raise self._refused()

    def abort(self, message: str, status: int = 1) -> NoReturn:
        """There is nobody."""
        raise self._refused()

    def _refused(self) -> ParallelError:
        return ParallelError(f"wanted plans alone of {self.size} processes that are not there, received a step to do")
