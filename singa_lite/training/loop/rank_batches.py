"""RankBatches: the batches of an epoch, which all ranks take at the same time, and each rank's results of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

from singa_lite.common.errors import ParallelError, RankFailedError
from singa_lite.data.loading.data_set import Batch, DataSet
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.training.loop.means import MetricShard

T = TypeVar("T")


class _RankState(NamedTuple):
    """A process's state between two batches, sent to the other ranks. part: of the batch done, None before the first;
    own: whether its data have a batch more, of no sample perhaps; error: why it cannot go on, "" where it can; place:
    of its data behind the batch done.
    """

    part: MetricShard | None
    place: object
    own: bool
    error: str = ""


class RankBatches:
    """Goes through the batches of one process. ranks: None, or those that train together: then all come to the same
    batches, and where one fails or ends before the others, all know it before the next step.

    One whose data end first takes part with batches that have no samples. places: where all processes' data are behind
    the last batch, by rank.
    """

    def __init__(self, ranks: DataParallel | None, batches: Iterator[Batch | None], data: DataSet) -> None:
        self._ranks = None if ranks is None or ranks.size == 1 else ranks
        self._batches = batches
        self._data = data
        self._next: Batch | None = None
        self._failure: Exception | None = None
        self._goes_on = False
        self.places: list[object] = []

    def __iter__(self) -> Iterator[Batch]:
        """The batches. `gather_shards` must be called behind each."""
        if self._ranks is None:
            yield from self._single_process_batches()
            return
        self._exchange(None, None)
        while self._goes_on:
            if self._failure is not None:  # which comes behind all that is to be done of the batch before
                raise self._failure
            batch, self._next = self._next, None
            yield self._data.without_samples() if batch is None else batch

    def _single_process_batches(self) -> Iterator[Batch]:
        for batch in self._batches:
            if batch is None:
                raise ParallelError("wanted whole batches of a process that is alone, received a share")
            yield batch

    def gather_shards(self, part: MetricShard, place: object = None) -> list[MetricShard]:
        """What all processes have seen of the batch, by rank, without those that had no sample.

        part, place: this one's.
        """
        return [part] if self._ranks is None else self._exchange(part, place)

    def _exchange(self, part: MetricShard | None, place: object) -> list[MetricShard]:
        """Take the next batch, and tell each other how that went."""
        has_more = self._take()
        text = "" if self._failure is None else f"{type(self._failure).__name__}: {self._failure}"
        states = gather_values(self._ranks, _RankState(part, place, has_more, text), "fit: between batches")
        failed = [
            f"rank {rank} of {len(states)} failed: {each.error}" for rank, each in enumerate(states) if each.error
        ]
        if failed and self._failure is None:
            self._failure = RankFailedError(failed[0])
        self.places = [each.place for each in states]
        self._goes_on = bool(failed) or any(each.own for each in states)
        return [each.part for each in states if each.part is not None and each.part.size]

    def _take(self) -> bool:
        """Whether there is a further batch, of which some samples may be this process's."""
        try:
            self._next = next(self._batches)
        except StopIteration:
            return False
        except Exception as error:
            self._failure = error
            return False
        return True


def gather_values(ranks: DataParallel | None, value: T, doing: str) -> list[T]:
    """What every process gave, by rank. doing: what for, as messages to users say it."""
    return [value] if ranks is None or ranks.size == 1 else cast("list[T]", ranks.gathered(value, doing))


def check_same_call(where: str, calls: Sequence[Mapping[str, object]]) -> None:
    """ParallelError where ranks have made a call otherwise, or are elsewhere of it. calls: {fact: value}, by rank."""
    for rank, facts in enumerate(calls):
        for name, value in facts.items():
            if value != calls[0][name]:
                raise ParallelError(
                    f"{where}: wanted the same call on all {len(calls)} ranks, received {name} {calls[0][name]} on "
                    f"rank 0 and {value} on rank {rank}"
                )


#: Under this name the places of all ranks' own loaders are in a checkpoint, by rank.
_BY_RANK = "by rank"


def joined_places(places: Sequence[object]) -> object:
    """The places of several processes' data as one; None where none is needed."""
    return {_BY_RANK: list(places)} if any(place is not None for place in places) else None


def own_place(ranks: DataParallel | None, place: object) -> object:
    """This process's of a place, of however many processes it is. ValueError where it is of others than these."""
    by_rank = place.get(_BY_RANK) if isinstance(place, dict) else None
    rank, size = (0, 1) if ranks is None else (ranks.rank, ranks.size)
    if not isinstance(by_rank, list):
        if place is not None and size > 1:
            raise ValueError(f"wanted a place for the loader of each of {size} ranks, received that of one process")
        return place
    if len(by_rank) != size:
        raise ValueError(f"wanted places for the loaders of {size} ranks, received those of {len(by_rank)}")
    own: object = by_rank[rank]
    return own
