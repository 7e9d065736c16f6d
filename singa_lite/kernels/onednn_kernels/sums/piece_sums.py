"""Sums of activations by channels, by the library's own normalisation over pieces that stay in the caches.

    x:   | piece | piece | ... | piece |        each: mean and variance of so few pixels that float32 is enough
                                                all:  put together in float64, on the host

Each piece is centred by its own mean, or for gradients by that of the batch, so a large mean costs no digits. What the
library makes of a piece besides, normalised or differentiated, goes to a scratch that nobody reads. Its code for
AVX-512 takes bfloat16 as it lies, so batch normalisation takes 0.4 to 0.6 of the time that it does over running sums
(`channel_sums.py`), for which each piece is converted first. In float32 both take as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import lcm

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.onednn_kernels import one_thread
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library.library import OneDNNError
from singa_lite.kernels.onednn_kernels.library.primitive import MemoryDesc, Primitive
from singa_lite.kernels.onednn_kernels.pieces import piece_size
from singa_lite.kernels.onednn_kernels.pitched import Span
from singa_lite.kernels.onednn_kernels.routine import BufferView
from singa_lite.kernels.onednn_kernels.sums.channel_sums import Before, Moments, Totals
from singa_lite.kernels.onednn_kernels.sums.columns import SHORT, Activations, Columns
from singa_lite.kernels.routine import Temporary

#: Bytes of a piece, and of what is made of it: both stay in a core's caches.
PIECE_BYTES = 1 << 18
#: Pixels of a piece at most: the error of their sum in float32 grows with their number.
_MOST_PIXELS = 1 << 11
#: Elements that the scratch lies off the start of its temporary: what lies at a multiple of its vectors' length the
#: library writes past the caches.
_ASIDE = 8

_FLAGS = f.USE_SCALE | f.USE_SHIFT


def is_fast(columns: Columns) -> bool:
    """Whether the library has code for AVX-512 for these activations."""
    matrix = columns.in_registers()
    if matrix is None:
        return False
    try:
        made = _forward(columns, _desc(columns, (1, matrix.unit * columns.channels, 1, 1)))
    except OneDNNError as error:
        if error.status != OneDNNError.UNIMPLEMENTED:
            raise
        return False
    return "avx512" in made.implementation


class PieceSums:
    """Adds steps that sum activations by channels. longest: pixels of the longest piece.

    columns: channels last, `is_fast`; totals: of `add_products`.
    """

    def __init__(self, columns: Columns) -> None:
        matrix = columns.in_registers()
        if matrix is None:
            raise ValueError(f"sums by pieces: wanted whole registers of channels, received {columns.shape}")
        self.columns, self.work, self._matrix = columns, columns.work, matrix
        self._threads = 1 if columns.work.is_small else one_thread.count()
        self.longest = self._longest()
        starts = range(0, columns.pixels, self.longest)
        self._pieces = [(row, Span(at, min(self.longest, columns.pixels - at))) for row, at in enumerate(starts)]
        waste = self.work.temporary((self.longest * columns.channels + _ASIDE,), columns.dtype)
        self._waste = waste.part(_ASIDE, waste.shape[0] - _ASIDE, columns.dtype)
        self._lines = [self._vectors(len(self._pieces)) for _ in range(2)]
        self.totals = Totals(*(self.work.temporary((columns.channels,), "float64") for _ in range(2)))

    def add_moments(self, x: Activations) -> Moments:
        """Add the steps of both moments of x."""
        made = cache(lambda pixels: _forward(self.columns, self._piece_desc(pixels)))
        means, variances = self._lines

        def add(piece: tuple[int, Span]) -> None:
            row, span = piece
            source = self.columns.part(*self.columns.near(x, span))
            statistics = {f.MEAN: self._row(means, row), f.VARIANCE: self._row(variances, row)}
            self.work.run(made(span.length), {f.SRC: source, f.DST: self._unread(span), **statistics})

        self.work.repeat(self._pieces, add)
        moments = Moments(*(self.work.temporary((self.columns.channels,), "float64") for _ in range(2)))
        shares = [span.length / self.columns.pixels for _, span in self._pieces]
        self.work.call(partial(_merge_moments, shares), means, variances, moments.variance, moments.mean)
        return moments

    def add_products(
        self, x: Activations, dy: Activations, mean: BufferView, inv_std: BufferView, before: Before | None = None
    ) -> None:
        """Add the steps of the sums of (x - mean) * dy and of dy, into `totals`. before: as of `ChannelSums.add`."""
        made = cache(lambda pixels: _backward(self.columns, self._piece_desc(pixels)))
        centre, ones = self._matrix.vector(mean), self._vectors(1)
        products, sums = self._lines

        def add(piece: tuple[int, Span]) -> None:
            row, span = piece
            there = {} if before is None else before(span)
            near, slope = (there.get(id(one)) or self.columns.near(one, span) for one in (x, dy))
            reads = {f.SRC: self.columns.part(*near), f.DIFF_DST: self.columns.part(*slope)}
            vectors = {f.MEAN: centre, f.VARIANCE: ones, f.SCALE: ones}
            results = {f.DIFF_SCALE: self._row(products, row), f.DIFF_SHIFT: self._row(sums, row)}
            self.work.run(made(span.length), {**reads, **vectors, **results, f.DIFF_SRC: self._unread(span)})

        self.work.call(_fill, ones)
        self.work.repeat(self._pieces, add)
        self.work.call(partial(_add_up, self.columns.channels), products, self.totals.products)
        self.work.call(partial(_add_up, self.columns.channels), sums, self.totals.sums)

    def _longest(self) -> int:
        """Whole rows, so many for each thread where that can be."""
        columns = self.columns
        row = lcm(self._matrix.unit, columns.at_least(SHORT).unit)
        shared = row * self._threads
        unit = row if columns.pixels % shared else shared
        most = min(_MOST_PIXELS, PIECE_BYTES // (columns.channels * columns.dtype.itemsize))
        return min(columns.pixels, piece_size(columns.pixels // unit, max(1, most // unit)) * unit)

    def _piece_desc(self, pixels: int) -> MemoryDesc:
        """A piece as images, one for each thread: the library shares images between threads."""
        rows = pixels // self._matrix.unit
        images = self._threads if rows % self._threads == 0 else 1
        return _desc(self.columns, (images, self._matrix.unit * self.columns.channels, 1, rows // images))

    def _vectors(self, count: int) -> Temporary:
        return self.work.temporary((count, self._matrix.unit * self.columns.channels), "float32")

    def _row(self, vectors: Temporary, row: int) -> BufferView:
        return vectors.part(row * vectors.shape[1], vectors.shape[1], "float32")

    def _unread(self, span: Span) -> BufferView:
        return self.columns.part(self._waste, Span(0, span.length))


def _desc(columns: Columns, shape: tuple[int, ...]) -> MemoryDesc:
    return memory_descs.dense(shape, str(columns.dtype), layouts.CHANNELS_LAST)


def _forward(columns: Columns, images: MemoryDesc, flags: int = 0) -> Primitive:
    make: Callable[..., Primitive] = columns.work.make
    return make("batch_normalization_forward", f.FORWARD_TRAINING, images, images, 0.0, flags)


def _backward(columns: Columns, images: MemoryDesc) -> Primitive:
    """By statistics that are given, so that it does not wait for the sums to differentiate."""
    flags = _FLAGS | f.USE_GLOBAL_STATS
    hint = _forward(columns, images, flags)
    make: Callable[..., Primitive] = columns.work.make
    return make("batch_normalization_backward", f.BACKWARD, images, images, images, 0.0, flags, forward=hint)


def _merge_moments(shares: Sequence[float], means: Array, variances: Array, variance: Array, mean: Array) -> None:
    """Moments of all pixels from those of pieces, each a vector for every pixel of a row, by their shares of pixels."""
    shape = len(shares), -1, mean.size
    weights = np.array(shares).reshape(-1, 1, 1)
    parts = means.reshape(shape).astype(np.float64)
    units = parts.shape[1]
    np.divide((weights * parts).sum((0, 1)), units, out=mean)
    np.subtract(parts, mean, out=parts)
    np.square(parts, out=parts)
    np.add(parts, variances.reshape(shape), out=parts)
    np.divide((weights * parts).sum((0, 1)), units, out=variance)


def _add_up(channels: int, lines: Array, total: Array) -> None:
    np.add.reduce(lines.reshape(-1, channels), axis=0, dtype=np.float64, out=total)


def _fill(ones: Array) -> None:
    ones.fill(1)
