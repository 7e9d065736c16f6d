"""LoadedSamples: a data set whose batches take work, reading by chunks, decoding or transforms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, Shaped
from singa_lite.data import Processes
from singa_lite.data.loading.data_set import Batch, Batches, emptied
from singa_lite.data.loading.samples import ArraySource, Index, Samples, Sliceable
from singa_lite.data.loading.transformed import BatchMaker, Job, stored
from singa_lite.data.loading.windows import GrainReader, Windows
from singa_lite.data.loading.workers import Crew


class Loading(NamedTuple):
    """The options of how batches are made. workers: threads, or processes; window: bytes that shuffling a set on disk
    may hold.

    is_strict: whether workers without work are an error, or are not begun.
    """

    workers: int | Processes
    window: int
    is_strict: bool = True

    def workers_for(self, where: str, has_work: bool, data: str) -> int | Processes:
        """Those for data that have work for them, or not. ValueError for workers without work."""
        if has_work or not self.is_strict:
            return self.workers if has_work else 0
        if self.workers != 0:
            raise ValueError(f"{where} workers: wanted 0 for {data}, received {self.workers}; prefetch= takes ahead")
        return 0


class _Read(NamedTuple):
    """The samples read of a batch, by layer."""

    inputs: dict[str, Shaped]
    targets: dict[str, Shaped]


class LoadedSamples(Samples):
    """Samples of which some are on disk in chunks, made one by one, or behind a transform.

    One thread reads; workers decode and transform.
    """

    is_loaded = True

    def __init__(self, where: str, plain: Samples, loading: Loading) -> None:
        super().__init__(plain.inputs, plain.targets, plain.batch_size, plain.single, plain.dtypes)
        making = BatchMaker(self.inputs)
        kind = "samples that are neither transformed nor made one by one"
        workers = loading.workers_for(where, bool(making.names), kind)
        self.is_random = any(stored(rows) is not rows for rows in self.inputs.values())
        self._made = making.names
        self._crew = Crew(where, making, workers)
        chunked = list(self._by_chunk().values())
        self._windows = Windows(where, chunked, loading.window) if chunked else None

    def draw(self, random: np.random.Generator) -> Array | None:
        """See `DataSet`."""
        return super().draw(random) if self._windows is None else self._windows.draw(random)

    def through(
        self, order: Array | None = None, start: int = 0, prefetch: int = 0, epoch: int = 0, key: int = 0
    ) -> Batches:
        """See `DataSet`."""
        jobs = self._jobs(order, start, key)
        made = (self._whole(read, made) for read, made in self._crew.through(jobs, prefetch))
        return self._in_turn(made, start)

    def _in_turn(self, made: Batches, start: int) -> Batches:
        """The batches, and None for each whose share has no samples."""
        with closing(made):
            for piece in self.own_slices(start):
                yield None if piece.start == piece.stop else next(made)

    def without_samples(self) -> Batch:
        """See `DataSet`."""
        with closing(self._crew.through(self._jobs_of([slice(0, 1)], None, 0), 0)) as through:
            read, made = next(through)
        return emptied(self._whole(read, made))

    def close(self) -> None:
        """See `DataSet`."""
        self._crew.close()

    def _by_chunk(self) -> dict[str, ArraySource]:
        """All that is read by whole chunks."""
        every = {f"x {name}": stored(rows) for name, rows in self.inputs.items()}
        every |= {f"y {name}": rows for name, rows in (self.targets or {}).items()}
        return {name: rows for name, rows in every.items() if rows.starts is not None}

    def _jobs(self, order: Array | None, start: int, key: int) -> Iterator[tuple[_Read, Job]]:
        """What each batch is made of, read in this order."""
        return self._jobs_of([own for own in self.own_slices(start) if own.start < own.stop], order, key)

    def _jobs_of(self, pieces: list[slice], order: Array | None, key: int) -> Iterator[tuple[_Read, Job]]:
        left = np.arange(self.count) if order is None else order
        reader = None
        if self._windows is not None:
            reader = GrainReader(self._windows, self._by_chunk(), np.concatenate([left[piece] for piece in pieces]))
        for piece in pieces:
            numbers = left[piece]
            chunked = {} if reader is None else reader.take(numbers)
            yield self._read(numbers, piece if order is None else numbers, chunked, key)

    def _read(self, numbers: Array, index: Index, chunked: dict[str, Array], key: int) -> tuple[_Read, Job]:
        inputs: dict[str, Shaped] = {}
        samples: dict[str, Array | Sliceable] = {}
        for name, rows in self.inputs.items():
            if stored(rows).one_by_one:
                samples[name] = stored(rows).part(numbers)
                continue
            taken = chunked.get(f"x {name}")
            read = stored(rows).take(index, True) if taken is None else taken
            if name in self._made:
                samples[name] = np.asarray(read)
            else:
                inputs[name] = read
        targets: dict[str, Shaped] = {}
        for name, rows in (self.targets or {}).items():
            taken = chunked.get(f"y {name}")
            targets[name] = rows.take(index, True) if taken is None else taken
        return _Read(inputs, targets), Job(numbers, samples, key)

    def _whole(self, read: _Read, made: dict[str, Array]) -> Batch:
        """The batch, as the net takes it."""
        inputs = {name: made[name] if name in made else read.inputs[name] for name in self.inputs}
        return self.given(inputs, None if self.targets is None else read.targets)
