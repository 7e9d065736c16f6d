"""DataSet: what `fit` and `evaluate` go through batch by batch, and the share of it that one process takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import NamedTuple, TypeAlias

import numpy as np

from singa_lite.common.array_types import Array, Shaped
from singa_lite.common.arrays import dtype_of

#: One array, or {layer: array}, as the user gave them.
Taken: TypeAlias = Shaped | dict[str, Shaped]
#: Samples and targets of a batch, and perhaps weights of its samples.
Batch: TypeAlias = tuple[Taken, Taken | None] | tuple[Taken, Taken | None, Taken]
#: What goes through a data set: one batch after the other; None where a batch has no samples for this process.
Batches: TypeAlias = Generator[Batch | None, None, None]


class Share(NamedTuple):
    """One process's part of every batch. rank: its number, from 0; size: how many processes there are.

    Parts are as equal as can be, the larger ones first, and in the order of the batch: put behind each other by rank
    they are the batch.
    """

    rank: int = 0
    size: int = 1

    def slice_of(self, number: int, count: int) -> slice:
        """The samples of batch `number`, of so many, that are this one's; perhaps none."""
        each, more = divmod(count, self.size)
        first = self.rank * each + min(self.rank, more)
        return slice(first, first + each + (self.rank < more))

    def samples(self, number: int, count: int) -> int:
        """How many these are."""
        part = self.slice_of(number, count)
        return int(part.stop - part.start)


class InTurn(Share):
    """Whole batches, one after the other: those that no sum over processes is needed for, to the last bit."""

    def slice_of(self, number: int, count: int) -> slice:
        """All of the batch, or nothing."""
        return slice(0, count if number % self.size == self.rank else 0)


#: All of each batch, as a process alone takes it.
WHOLE = Share()


class DataSet(ABC):
    """What `fit` and `evaluate` go through.

    count: samples of an epoch; batch_size: of a batch, the last one aside; buckets: ((length, size), ...) of sequences
    in buckets, whose batches have these sizes; forms: how many forms of batch there are.

    Of batches that come ready-made count is 0, as only they know, and batch_size too. batches: how many an epoch has,
    None where samples say, 0 where nobody knows before its end. is_loaded: whether batches take work, so that training
    may wait for them. steps: batches of an epoch, where `fit` was told so. is_random: whether they depend on `key`.
    once: whether they can be gone through once only. share: what of each batch is taken, where several processes train
    together; count, batch_size and orders are of the whole batches.
    """

    count: int
    batch_size: int
    forms: int
    buckets: tuple[tuple[int, int], ...] = ()
    batches: int | None = None
    steps: int | None = None
    is_loaded = False
    is_random = False
    once = False
    share = WHOLE

    @property
    def ordered(self) -> int:
        """How many samples, or ready-made batches, an order is of; 0: they come as they come."""
        return self.count if self.batches is None else self.batches

    def draw(self, random: np.random.Generator) -> Array | None:
        """An order for an epoch, of all samples, or of all batches that come ready-made; None: as they come."""
        return random.permutation(self.ordered) if self.ordered else None

    def divide(self, share: Share) -> None:
        """Take only this share of each batch from now on."""
        self.share = share

    @abstractmethod
    def without_samples(self) -> Batch:
        """A batch without samples, for a process that has none of a batch and takes part in its step."""

    @abstractmethod
    def iterate(
        self, order: Array | None = None, start: int = 0, prefetch: int = 0, epoch: int = 0, key: int = 0
    ) -> Batches:
        """Samples and targets of each batch from number `start`, in this order, or the data's.

        So many batches are made ahead, in a thread, until closed. epoch: its number; key: of its random numbers.
        """

    def place(self) -> object:
        """What brings the source behind the last batch that was taken, as JSON holds it; None: nothing is needed."""
        return None

    def go_to(self, epoch: int, batch: int, place: object) -> None:  # noqa: B027  # most sources need nothing
        """Let the next epoch go on from there. ValueError where that cannot be."""

    def digest(self) -> int | None:
        """Equal where two processes have equal data, as far as some samples in memory tell; None: nobody knows."""
        return None

    def facts(self) -> dict[str, object]:
        """What is equal on all ranks that evaluate it together, by name."""
        facts = {name: getattr(self, name) for name in ("batch_size", "buckets", "steps")}
        return {"samples": self.count, **facts, "a digest of some samples": self.digest()}

    def close(self) -> None:  # noqa: B027
        """Give up what is kept from epoch to epoch."""


def emptied(batch: Batch) -> Batch:
    """A batch of the same form without samples."""
    x, y, *weights = batch
    return (_emptied(x), None if y is None else _emptied(y), *map(_emptied, weights))  # type: ignore[return-value]


def _emptied(taken: Taken) -> Taken:
    if isinstance(taken, dict):
        return {name: _none_of(each) for name, each in taken.items()}
    return _none_of(taken)


def _none_of(array: Shaped) -> Shaped:
    return np.empty((0, *array.shape[1:]), dtype_of(array))


def count_of(taken: Taken) -> int:
    """How many samples a batch has."""
    return int((next(iter(taken.values())) if isinstance(taken, dict) else taken).shape[0])


def positions_of(taken: Taken) -> int:
    """How many positions each sample has of a batch of ids (n, time); 0 for other batches."""
    first = next(iter(taken.values())) if isinstance(taken, dict) else taken
    found = dtype_of(first)
    return int(first.shape[1]) if len(first.shape) == 2 and found is not None and found.kind in "iu" else 0
