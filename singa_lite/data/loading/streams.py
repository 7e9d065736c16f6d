"""Stream: a data set whose batches come ready-made, from iterators, loaders and sequences of batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from itertools import islice

from singa_lite.common.array_types import Array
from singa_lite.common.arrays import kind
from singa_lite.common.errors import DataError
from singa_lite.common.notice import warn
from singa_lite.data import Epochs, Processes
from singa_lite.data.loading.batch_sources import BatchSource, Indexed, InOwnMemory, Names, Stateful, copied, parts_of
from singa_lite.data.loading.data_set import Batch, Batches, DataSet, emptied
from singa_lite.data.loading.loaded_samples import Loading
from singa_lite.data.loading.workers import Crew, prefetched

_END = object()

#: A batch of x, y and weights of samples as the net takes it, checked.
Check = Callable[[object, object, object], Batch]


class Stream(DataSet):
    """Batches of a source, each checked before its step. steps: of an epoch; None: all there are.

    loading: whose workers make batches by number. names: of entries, where a batch is a dict. wants_targets: whether a
    batch is (x, y), perhaps with sample weights behind, or may be x alone.
    """

    count = 0
    batch_size = 0
    forms = 1
    is_loaded = True

    def __init__(
        self,
        where: str,
        source: BatchSource,
        check: Check,
        steps: int | None,
        loading: Loading,
        names: Names,
        wants_targets: bool = True,
    ) -> None:
        self.steps = steps
        self.once = isinstance(source, Iterator)
        self._where, self._source, self._check, self._wants_targets = where, source, check, wants_targets
        self._names = names
        self._stateful = source if isinstance(source, Stateful) else None
        self._crew: Crew[int, object] | None = None
        self.batches = 0
        workers = loading.workers_for(where, isinstance(source, Indexed), "batches that come one after the other")
        if isinstance(source, Indexed):
            self.batches = self._length(source)
            if workers != 0:  # of processes each has a source of its own
                work = source.__getitem__ if isinstance(workers, Processes) else InOwnMemory(source)
                self._crew = Crew(where, work, workers)
        self._going: Iterator[object] | None = None
        self._may_begin_anew = False
        self._place: object = None
        self._form: Batch | None = None

    # ---- through an epoch

    def without_samples(self) -> Batch:
        """See `DataSet`: of the form of the last batch. DataError where there was none."""
        if self._form is None:
            raise DataError(f"{self._where}: wanted at least one batch, received none")
        return self._form

    def iterate(
        self, order: Array | None = None, start: int = 0, prefetch: int = 0, epoch: int = 0, key: int = 0
    ) -> Batches:
        """See `DataSet`."""
        if isinstance(self._source, Indexed):
            made = self._by_number(self._source, order, start, prefetch)
        else:
            made = prefetched(_in_own_memory(self._iterated(start, epoch), prefetch), prefetch)
        return self._checked_batches(made, start, epoch)

    def _checked_batches(self, made: Generator[tuple[object, object], None, None], start: int, epoch: int) -> Batches:
        """The batches, checked, each with where the source is behind it. Errors say which batch they are of."""
        number = start
        try:
            while True:
                with self._named(number, epoch):
                    given, place = next(made, (None, _END))
                    if place is _END:
                        break
                    taken = self._checked(given)
                self._place = place
                if self.share.size > 1:
                    self._form = emptied(taken)
                del given
                yield taken
                del taken
                number += 1
        finally:
            made.close()

    @contextmanager
    def _named(self, number: int, epoch: int) -> Iterator[None]:
        """Say of an error which batch it is of, in a note, so that it stays the source's own."""
        try:
            yield
        except Exception as error:
            error.add_note(f"{self._where}: batch {number} of epoch {epoch}, both counted from 0")
            raise

    def _by_number(
        self, source: Indexed, order: Array | None, start: int, prefetch: int
    ) -> Generator[tuple[object, object], None, None]:
        numbers = range(self._length(source)) if order is None else order.tolist()
        if self._crew is None:
            yield from prefetched(
                _in_own_memory(((source[number], None) for number in numbers[start:]), prefetch), prefetch
            )
        else:
            for _, made in self._crew.map_jobs(((None, number) for number in numbers[start:]), prefetch):
                yield made, None
        ended = getattr(source, "on_epoch_end", None)
        if callable(ended):
            ended()

    def _iterated(self, start: int, epoch: int) -> Iterator[tuple[object, object]]:
        """(batch, where the source is behind it). DataError for too few."""
        count, left = start, self._source_iterator(start, epoch)
        while self.steps is None or count < self.steps:
            batch = next(left, _END)
            if batch is not _END:
                self._may_begin_anew = True
                count += 1
                yield batch, None if self._stateful is None else self._stateful.state_dict()
                continue
            self._going = None
            if self.steps is None and count:
                return
            if self.once or isinstance(self._source, Epochs) or not self._may_begin_anew:
                wanted = "at least one batch" if self.steps is None else f"{self.steps} batches"
                raise DataError(f"{self._where}: wanted {wanted} in epoch {epoch}, received {count} and then the end")
            self._may_begin_anew = False
            left = self._source_iterator(0, epoch)

    def _source_iterator(self, start: int, epoch: int) -> Iterator[object]:
        """What the next batches are taken from. With `steps` it goes on from epoch to epoch."""
        if isinstance(self._source, Epochs):
            return islice(self._source.make(epoch), start, None)
        if self._going is None and isinstance(self._source, Iterable):
            self._going = iter(self._source)
        return iter(()) if self._going is None else self._going

    def _checked(self, given: object) -> Batch:
        """The batch as the net takes it. TypeError for what is none."""
        parts = given if isinstance(given, tuple | list) else ()
        if isinstance(given, Mapping):
            parts = parts_of(self._where, given, self._names)
            if self._wants_targets and parts[1] is None:
                raise TypeError(f"{self._where}: wanted batches with targets, received entries {list(given)}")
        if len(parts) in (2, 3):
            return self._check(*parts, *[None] * (3 - len(parts)))
        if self._wants_targets:
            received = f"{kind(given)} of {len(parts)} parts" if parts else kind(given)
            raise TypeError(f"{self._where}: wanted batches (x, y), received {received}")
        return self._check(given, None, None)

    def _length(self, source: Indexed) -> int:
        count = len(source)
        if count < 1:
            raise DataError(f"{self._where}: wanted at least one batch, received len() {count}")
        return count

    # ---- places

    def place(self) -> object:
        """See `DataSet`."""
        return self._place

    def go_to(self, epoch: int, batch: int, place: object) -> None:
        """See `DataSet`."""
        if not (epoch or batch) or isinstance(self._source, Indexed | Epochs):
            return
        if self._stateful is not None and place is not None:
            self._load(self._stateful, place)
        elif batch or self.once or self.steps is not None:
            raise ValueError(
                f"wanted a source whose place can be kept, to go on at batch {batch} of epoch {epoch}: batches by "
                "number (__len__ and __getitem__), data.Epochs(make), or one with state_dict() and "
                f"load_state_dict(state), received {kind(self._source)}"
            )
        else:
            warn(f"{self._where}: {kind(self._source)} begins anew, by random numbers of its own if it has any")

    def _load(self, source: Stateful, place: object) -> None:
        try:
            source.load_state_dict(place)
        except Exception as error:
            raise ValueError(f"wanted {kind(source)} to go on from its state, received {error!r}") from error
        self._may_begin_anew = True  # the state may be that of an epoch's end

    def close(self) -> None:
        """See `DataSet`."""
        if self._crew is not None:
            self._crew.close()


def _in_own_memory(made: Iterable[tuple[object, object]], prefetch: int) -> Iterator[tuple[object, object]]:
    """Batches and places, copied where the source makes the next ones before they are used."""
    return map(_copied, made) if prefetch else iter(made)


def _copied(made: tuple[object, object]) -> tuple[object, object]:
    given, place = made
    return copied(given), deepcopy(place)
