"""The pass that normalises activations by given statistics, for all pixels or some of them: the bits are the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library.primitive import PostOp, Primitive
from singa_lite.kernels.onednn_kernels.routine import BufferView
from singa_lite.kernels.onednn_kernels.sums.columns import Columns
from singa_lite.kernels.routine import Temporary

#: What is done with each element behind: an algorithm with an element of another tensor, or of one, alpha and beta.
End = int | tuple[int, float, float]

#: Below it 1 / deviation may be of numbers that differ by more than float32 can hold.
_LEAST = 1e-30


class Normalized:
    """Adds steps: target = (source - mean) * scale + shift, of vectors of channels, and what is done behind that.

    One primitive with a row of post-ops, so that each element goes once through the processor, whatever is behind. (The
    library's own normalisation can only do a relu besides; by itself it takes as long.)
    """

    def __init__(self, columns: Columns, mean: BufferView, scale: BufferView, shift: BufferView) -> None:
        self.columns, self.work, self._vectors = columns, columns.work, (mean, scale, shift)
        self._rows = [columns.vector(vector) for vector in self._vectors]
        self._made: dict[tuple[int, tuple[End, ...]], Primitive] = {}

    def add(
        self,
        pixels: int,
        source: BufferView,
        target: BufferView,
        ends: tuple[End, ...] = (),
        others: Sequence[BufferView] = (),
    ) -> None:
        """Add a step for so many pixels of both. ends: what is done behind; others: operands of those that take one."""
        made = self._made.get((pixels, ends))
        if made is None:
            made = self._made[pixels, ends] = self._primitive(pixels, ends)
        mean, scale, shift = self._rows if self._in_rows(pixels) else self._vectors
        operands = {f.SRC: source, f.DST: target, f.SRC_1: mean, f.post_op(0): scale, f.post_op(1): shift}
        taking = (index for index, end in enumerate(ends, 2) if isinstance(end, int))
        operands |= {f.post_op(index): other for index, other in zip(taking, others, strict=True)}
        self.work.run(made, operands)

    def _in_rows(self, pixels: int) -> bool:
        return pixels % self.columns.unit == 0

    def _primitive(self, pixels: int, ends: tuple[End, ...]) -> Primitive:
        if self._in_rows(pixels):
            line, vector = self.columns.part_desc(pixels), self.columns.vector_desc
        else:
            shapes = [(count, self.columns.channels, 1, 1) for count in (pixels, 1)]
            dtypes = str(self.columns.dtype), "float32"
            line, vector = map(partial(memory_descs.dense, axes=layouts.CHANNELS_LAST), shapes, dtypes)
        links: list[PostOp] = [("binary", algorithm, vector) for algorithm in (a.MULTIPLY, a.ADD)]
        links += [("binary", end, line) if isinstance(end, int) else ("eltwise", *end) for end in ends]
        return self.work.make("binary", a.SUBTRACT, line, vector, line, post_ops=links)

    def turned(self) -> Normalized:
        """Add a step. What gives the same results with the other sign."""
        mean, scale, shift = self._vectors
        turned = [self.work.temporary((self.columns.channels,), "float32") for _ in range(2)]

        def turn(scale: Array, shift: Array, *turned: Array) -> None:
            for vector, target in zip((scale, shift), turned, strict=True):
                np.negative(vector, out=target)

        self.work.call(turn, scale, shift, *turned)
        return Normalized(self.columns, mean, *turned)

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
