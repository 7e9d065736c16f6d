"""The pass that normalises activations by given statistics, for all pixels or some of them: the bits are the same."""

from __future__ import annotations

import numpy as np

from singa_lite.array_types import Array
from singa_lite.kernels.onednn_kernels import algorithms as a
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.columns import Columns
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import BufferView
from singa_lite.kernels.routine import Temporary

_FIXED = f.USE_SCALE | f.USE_SHIFT | f.USE_GLOBAL_STATS

#: Below it 1 / deviation may be of numbers that differ by more than float32 can hold.
_LEAST = 1e-30


class Normalized:
    """Adds steps: target = (source - mean) * scale + shift, of vectors of channels.

    Channels last by the library's primitive, with a variance of 1: it writes the target without reading it into the
    caches. Each pixel is an image to it, as it is slower over large ones.
    """

    def __init__(self, columns: Columns, mean: BufferView, scale: BufferView, shift: BufferView) -> None:
        self.columns, self.work, self._vectors = columns, columns.work, (mean, scale, shift)
        #: By pixels and flags.
        self._made: dict[tuple[int, int], Primitive] = {}
        if columns.lie_last:
            self._ones = self.work.temporary((columns.channels,), "float32")
            self.work.call(lambda ones: ones.fill(1), self._ones)

    def add(self, pixels: int, source: BufferView, target: BufferView, rectify: bool = False) -> None:
        """Add a step for so many pixels of both. rectify: the larger of 0 and the result is stored, and 0 for
        NaN; only of channels that lie last.
        """
        mean, scale, shift = self._vectors
        flags = _FIXED | (f.FUSE_RELU if rectify else 0)
        made = self._made.get((pixels, flags))
        if made is None:
            made = self._made[pixels, flags] = self._primitive(pixels, flags)
        if self.columns.lie_last:
            vectors: dict[int, BufferView] = {f.MEAN: mean, f.VARIANCE: self._ones, f.SCALE: scale, f.SHIFT: shift}
        else:
            vectors = {f.SRC_1: mean, f.post_op(0): scale, f.post_op(1): shift}
        self.work.run(made, {f.SRC: source, f.DST: target, **vectors})

    def _primitive(self, pixels: int, flags: int) -> Primitive:
        if self.columns.lie_last:
            desc = memory_descs.dense((pixels, self.columns.channels, 1, 1), axes=layouts.CHANNELS_LAST)
            return self.work.make("batch_normalization_forward", f.FORWARD_INFERENCE, desc, desc, 0.0, flags)
        line, vector = self.columns.part_desc(pixels), self.columns.vector_desc
        links = [("binary", algorithm, vector) for algorithm in (a.MULTIPLY, a.ADD)]
        return self.work.make("binary", a.SUBTRACT, line, vector, line, post_ops=links)

    def find_calm(self, inv_std: BufferView) -> tuple[Temporary, Temporary]:
        """Add a step. Returns whether no result can be NaN or minus infinity, and whether one may be.

        inv_std: that of the statistics. Where it is 0, they are of numbers further apart than float32 can hold.
        """
        calm, other = (self.work.temporary((1,), "bool") for _ in range(2))

        def find(mean: Array, scale: Array, shift: Array, inv_std: Array, calm: Array, other: Array) -> None:
            finite = all(np.isfinite(vector).all() for vector in (mean, scale, shift))
            calm[0] = finite and bool((inv_std > _LEAST).all())
            other[0] = not calm[0]

        self.work.call(find, *self._vectors, inv_std, calm, other)
        return calm, other
