"""Shares: which samples one of several processes takes, of every batch or by whole batches."""

from __future__ import annotations

from typing import NamedTuple


class Share(NamedTuple):
    """One process's part of every batch. rank: its number, from 0; size: how many processes there are.

    Parts are as equal as can be, the larger ones first, and in the order of the batch: put behind each other by rank
    they are the batch.
    """

    rank: int = 0
    size: int = 1

    def of(self, number: int, count: int) -> slice:
        """The samples of batch `number`, of so many, that are this one's; perhaps none."""
        each, more = divmod(count, self.size)
        first = self.rank * each + min(self.rank, more)
        return slice(first, first + each + (self.rank < more))

    def samples(self, number: int, count: int) -> int:
        """How many these are."""
        part = self.of(number, count)
        return int(part.stop - part.start)


class InTurn(Share):
    """Whole batches, one after the other: those that no sum over processes is needed for, to the last bit."""

    def of(self, number: int, count: int) -> slice:
        """All of the batch, or nothing."""
        return slice(0, count if number % self.size == self.rank else 0)


#: All of each batch, as a process alone takes it.
WHOLE = Share()
