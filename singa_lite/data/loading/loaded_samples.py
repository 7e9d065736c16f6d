"""LoadedSamples: a data set whose batches take work, reading by chunks, decoding or transforms.

Reading single samples of a chunked set unpacks a whole chunk for each. So an epoch's order takes whole chunks, in
random order, and mixes samples within windows of several chunks; each chunk is read once, as its first sample is asked
for, and given up with its last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import reduce
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, Shaped
from singa_lite.common.arrays import dtype_of
from singa_lite.common.notice import warn
from singa_lite.data import Processes
from singa_lite.data.loading.data_set import Batch, Batches, emptied
from singa_lite.data.loading.samples import ArraySource, Index, Samples, Sliceable
from singa_lite.data.loading.transformed import BatchMaker, Job, stored
from singa_lite.data.loading.workers import Crew

#: Bytes of samples that are held to shuffle among, unless `fit(shuffle_window=)` says others.
USUAL_WINDOW = 64 * 2**20
#: Bytes that are read in one go of sets without chunks.
_BLOCK = 2**20
#: A window has at least so many grains, so that it mixes anything.
_GRAINS = 2


class Windows:
    """How arrays of equally many samples are gone through. arrays: those with `ArraySource.starts`, at least one.

    nbytes: held at most, two windows, as a batch may reach from one into the next.
    starts: the first sample of each *grain*: what is read in one go of all arrays, whole chunks where they agree.
    """

    def __init__(self, where: str, arrays: Sequence[ArraySource], nbytes: int) -> None:
        self.count = arrays[0].shape[0]
        self._nbytes = nbytes
        self._sample_bytes = max(1, sum(map(_sample_bytes, arrays)))
        self._is_one = self.count * self._sample_bytes <= nbytes
        self._samples = max(1, nbytes // 2 // self._sample_bytes)
        self.starts = self._grains(where, arrays)

    def _grains(self, where: str, arrays: Sequence[ArraySource]) -> Array:
        """Where all arrays' chunks begin, if these are small enough; else where the largest array's do, or within."""
        most = max(1, self._samples // _GRAINS)
        known = [(_sample_bytes(rows), rows.starts) for rows in arrays if rows.starts is not None and rows.is_chunked]
        if not known:
            return np.arange(0, self.count, max(1, min(most, _BLOCK // self._sample_bytes)), dtype=np.int64)
        common: Array = reduce(np.intersect1d, [starts for _, starts in known])
        heaviest = max(known, key=lambda each: each[0])[1]
        for starts in (common, heaviest):
            if self._is_one or self._longest(starts) <= most:
                return starts
        self._warn_of_large_chunks(where, self._longest(heaviest), most)
        pieces: Array = np.union1d(heaviest, np.arange(0, self.count, most, dtype=np.int64))
        return pieces

    def _longest(self, starts: Array) -> int:
        return int(np.diff(starts, append=self.count).max())

    def _warn_of_large_chunks(self, where: str, longest: int, most: int) -> None:
        """Warn of chunks that are too large to be held."""
        warn(
            f"{where}: wanted chunks of at most {most} samples, as shuffle_window={self._nbytes} holds "
            f"{2 * _GRAINS} chunks, received {longest} samples, {longest * self._sample_bytes / 2**20:.1f} MiB: each "
            "chunk is read several times"
        )

    def draw(self, random: np.random.Generator) -> Array:
        """An order of all samples, int64 (count,): any order where all fit into what may be held."""
        if self._is_one:
            return random.permutation(self.count)
        stops = np.append(self.starts[1:], self.count)
        grains = random.permutation(len(self.starts))
        window = (np.cumsum(stops[grains] - self.starts[grains]) - 1) // self._samples
        pieces = []
        for members in np.split(grains, np.flatnonzero(np.diff(window)) + 1):
            numbers = np.concatenate([np.arange(self.starts[grain], stops[grain]) for grain in members])
            random.shuffle(numbers)
            pieces.append(numbers)
        return np.concatenate(pieces)


class GrainReader:
    """Reads arrays in an order of their samples, each grain once. order: int (n,), those that will be asked for."""

    def __init__(self, windows: Windows, arrays: Mapping[str, ArraySource], order: Array) -> None:
        self._starts = windows.starts
        self._stops = np.append(windows.starts[1:], windows.count)
        self._arrays = arrays
        self._left = np.bincount(self._grains(order), minlength=len(self._starts))
        self._held: dict[int, dict[str, Array]] = {}

    def take(self, numbers: Array) -> dict[str, Array]:
        """The samples with these numbers, in their order, in fresh memory."""
        needed, places, counts = np.unique(self._grains(numbers), return_inverse=True, return_counts=True)
        pieces = [self._grain(int(grain)) for grain in needed]
        taken = {}
        for name in self._arrays:
            first = pieces[0][name]
            batch = np.empty((len(numbers), *first.shape[1:]), first.dtype)
            for place, (grain, piece) in enumerate(zip(needed, pieces, strict=True)):
                here = places == place
                batch[here] = piece[name][numbers[here] - self._starts[grain]]
            taken[name] = batch
        self._give_up(needed, counts)
        return taken

    def _grains(self, numbers: Array) -> Array:
        found: Array = np.searchsorted(self._starts, numbers, side="right") - 1
        return found

    def _grain(self, grain: int) -> dict[str, Array]:
        if grain not in self._held:
            piece = slice(int(self._starts[grain]), int(self._stops[grain]))
            self._held[grain] = {name: np.asarray(rows.take(piece, True)) for name, rows in self._arrays.items()}
        return self._held[grain]

    def _give_up(self, grains: Array, counts: Array) -> None:
        """Forget grains whose samples have all been asked for."""
        self._left[grains] -= counts
        for grain in grains[self._left[grains] <= 0]:
            self._held.pop(int(grain), None)


def _sample_bytes(rows: ArraySource) -> int:
    """Bytes of one sample as it is stored."""
    dtype = dtype_of(rows)
    return prod(rows.shape[1:]) * (1 if dtype is None else dtype.itemsize)


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

    def iterate(
        self, order: Array | None = None, start: int = 0, prefetch: int = 0, epoch: int = 0, key: int = 0
    ) -> Batches:
        """See `DataSet`."""
        jobs = self._jobs(order, start, key)
        made = (self._joined_batch(read, made) for read, made in self._crew.map_jobs(jobs, prefetch))
        return self._in_turn(made, start)

    def _in_turn(self, made: Batches, start: int) -> Batches:
        """The batches, and None for each whose share has no samples."""
        with closing(made):
            for piece in self.own_slices(start):
                yield None if piece.start == piece.stop else next(made)

    def without_samples(self) -> Batch:
        """See `DataSet`."""
        with closing(self._crew.map_jobs(self._jobs_of([slice(0, 1)], None, 0), 0)) as made_jobs:
            read, made = next(made_jobs)
        return emptied(self._joined_batch(read, made))

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

    def _joined_batch(self, read: _Read, made: dict[str, Array]) -> Batch:
        """The batch, as the net takes it."""
        inputs = {name: made[name] if name in made else read.inputs[name] for name in self.inputs}
        return self.to_batch(inputs, None if self.targets is None else read.targets)
