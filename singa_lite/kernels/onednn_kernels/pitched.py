"""Some channels of a larger tensor, as a piece of a concatenation lies: read and written a cacheful at a time.

    whole:   | r g b . . | r g b . . | r g b . . | ...        the piece's pixels have a pitch of 5 numbers
    scratch: | r g b r g b |                                  two of them, as primitives have fast code for

The library has plain loops alone for rows with gaps. So a span of pixels is copied into a scratch that stays in the
caches, and the primitive works there; what it does with each number, and in which order, is what it does without gaps.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from singa_lite.common.array_types import DType
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.layouts import FLOAT
from singa_lite.kernels.onednn_kernels.routine import BufferView, RowSlice
from singa_lite.kernels.onednn_kernels.work import Work
from singa_lite.kernels.routine import Temporary

#: Elements of a scratch at most: a span of pixels that one step leaves in the caches for the next.
SCRATCH = 1 << 18


class Span(NamedTuple):
    """`length` pixels of activations, from pixel `start` on."""

    start: int
    length: int


class Pitched:
    """Images (n, c, h, w), channels last, whose pixels have a pitch; `layouts.pitch_of` says which.

    copy: a tensor of the same images without gaps, for the pixels that are read; None: the scratch is.
    dtype: of the scratch.
    """

    def __init__(
        self,
        work: Work,
        tensor: TensorSpec,
        shape: tuple[int, ...],
        pitch: int,
        copy: TensorSpec | None = None,
        dtype: DType = FLOAT,
    ) -> None:
        self.work, self.tensor, self.pitch, self.copy, self.dtype = work, tensor, pitch, copy, dtype
        samples, self.channels, height, width = shape
        self.most = min(samples * height * width, max(1, SCRATCH // self.channels, -(-(1 << 13) // self.channels)))
        self._reorders: dict[tuple[int, bool], p.Reorder] = {}

    def read(self, span: Span) -> tuple[BufferView, Span]:
        """Add a step that copies these pixels. Returns what to, and which ones of it they are there."""
        near, there = (self.scratch, Span(0, span.length)) if self.copy is None else (self.copy, span)
        target = self.work.part(near, there.start * self.channels, there.length * self.channels, self.dtype)
        self.work.run(self._reorder(span.length, True), {f.SRC: self._rows(span), f.DST: target})
        return near, there

    def write(self, span: Span) -> None:
        """Add a step that copies the scratch to these pixels."""
        self.work.run(self._reorder(span.length, False), {f.SRC: self.dense(span), f.DST: self._rows(span)})

    @cached_property
    def scratch(self) -> Temporary:
        """For a span of pixels."""
        return self.work.temporary((self.most * self.channels,), self.dtype)

    def dense(self, span: Span) -> BufferView:
        """Where so many pixels stand in the scratch."""
        return self.work.part(self.scratch, 0, span.length * self.channels, self.dtype)

    def _rows(self, span: Span) -> RowSlice:
        return RowSlice(self.tensor, span.start, span.length, self.channels, self.pitch)

    def _reorder(self, pixels: int, reads: bool) -> p.Reorder:
        """Of two-dimensional tensors the library would copy number by number."""
        if (pixels, reads) not in self._reorders:
            shape = (1, self.channels, 1, pixels)
            strides = pixels * self.pitch, 1, pixels * self.pitch, self.pitch
            apart = p.memory_desc(shape, strides, str(self.tensor.dtype))
            dense = memory_descs.dense(shape, str(self.dtype), layouts.CHANNELS_LAST)
            with self.work.making():
                self._reorders[pixels, reads] = p.Reorder(apart, dense) if reads else p.Reorder(dense, apart)
        return self._reorders[pixels, reads]
