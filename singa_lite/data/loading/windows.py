"""Sets on disk, read chunk by chunk: orders that need each chunk once, and the chunks that are held meanwhile.

Reading single samples of a chunked set unpacks a whole chunk for each. So an epoch's order takes whole chunks, in
random order, and mixes samples within windows of several chunks; each chunk is read once, as its first sample is asked
for, and given up with its last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.arrays import dtype_of
from singa_lite.common.notice import warn
from singa_lite.data.loading.samples import ArraySource

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
        self._tell(where, self._longest(heaviest), most)
        pieces: Array = np.union1d(heaviest, np.arange(0, self.count, most, dtype=np.int64))
        return pieces

    def _longest(self, starts: Array) -> int:
        return int(np.diff(starts, append=self.count).max())

    def _tell(self, where: str, longest: int, most: int) -> None:
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
