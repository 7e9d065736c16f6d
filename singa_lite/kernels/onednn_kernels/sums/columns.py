"""Activations with the channels last as matrices of a few thousand columns: a few pixels side by side in a row.

    pixels of 3 channels, 2 to a row:    | r g b r g b |
                                         | r g b r g b |

Primitives are fast where rows are long and a multiple of a vector register, however many channels there are; and a sum
down a column has fewer terms. Images in C order are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import gcd

from singa_lite.common.array_types import Array, DType
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.layouts import FLOAT
from singa_lite.kernels.onednn_kernels.pieces import piece_size
from singa_lite.kernels.onednn_kernels.pitched import Pitched, Span
from singa_lite.kernels.onednn_kernels.routine import BufferView
from singa_lite.kernels.onednn_kernels.work import Work

#: The fewest columns, if the number of pixels has such a divisor; there are at most twice as many.
COLUMNS = 1 << 12
#: Elements of the widest vector register, of float32.
_REGISTER = 16
#: Columns of the matrix in a pass over activations: several vectors of this length must stay in the first cache.
SHORT = 1 << 9


#: Activations: without gaps, or some channels of a larger tensor.
Activations = BufferView | Pitched


class Columns:
    """The matrix of images of this shape (n, c, h, w), for steps of `work`.

    lie_last: whether the channels lie last, else the images are in C order. pixels: of all images together; unit:
    pixels that stay together, those of a row of the matrix, or of an image in C order; dtype: of the elements.
    """

    def __init__(
        self, work: Work, shape: tuple[int, ...], lie_last: bool, least: int = COLUMNS, dtype: DType = FLOAT
    ) -> None:
        self.work, self.shape, self.lie_last, self.dtype = work, shape, lie_last, dtype
        samples, self.channels, height, width = shape
        self.pixels = samples * height * width
        self.unit = _side_by_side(self.pixels, self.channels, least) if lie_last else height * width

    def at_least(self, least: int) -> Columns:
        """The matrix of the same images with so many columns at least."""
        return Columns(self.work, self.shape, self.lie_last, least, self.dtype)

    def in_registers(self) -> Columns | None:
        """That with as few columns as fill whole registers; None where no such number of pixels divides all."""
        matrix, matrix.unit = self.at_least(1), _REGISTER // gcd(_REGISTER, self.channels)
        return None if self.pixels % matrix.unit else matrix

    def part(self, tensor: BufferView, span: Span) -> BufferView:
        """The buffer of these pixels of activations."""
        return self.work.part(tensor, span.start * self.channels, span.length * self.channels, self.dtype)

    def near(self, tensor: Activations, span: Span) -> tuple[BufferView, Span]:
        """Where these pixels stand without gaps: a buffer, and which ones of it. Adds a step that copies them, if any.

        The copy is there until the next one is made, unless the tensor says where copies stay. A span is at most
        `RunningSums.piece` long.
        """
        if isinstance(tensor, Pitched):
            return tensor.read(span)
        return tensor, span

    @contextmanager
    def into(self, target: Activations, span: Span) -> Iterator[BufferView]:
        """Gives the buffer where steps inside put these pixels of a target; adds a step that copies them, if any."""
        if not isinstance(target, Pitched):
            yield self.part(target, span)
            return
        yield target.dense(span)
        target.write(span)

    def far(self, target: Activations, span: Span) -> tuple[BufferView, Span]:
        """Where steps put these pixels of a target without gaps: a buffer, and which ones of it. `Pitched.write` then
        copies them.
        """
        if isinstance(target, Pitched):
            return target.scratch, Span(0, span.length)
        return target, span

    def each(
        self,
        reads: Sequence[Activations],
        target: Activations,
        add: Callable[[int, Sequence[BufferView], BufferView], None],
    ) -> None:
        """Add steps that make the target of what is read, pixel by pixel: in one, or a cacheful of pixels at a time.

        add: adds primitives, the same ones for the same number of pixels, given these, what is read and the target.
        """
        whole = [view for view in reads if not isinstance(view, Pitched)]
        if len(whole) == len(reads) and not isinstance(target, Pitched):
            add(self.pixels, whole, target)
            return
        scratches = [tensor.most for tensor in (*reads, target) if isinstance(tensor, Pitched)]
        long = self.at_least(COLUMNS).unit  # as pieces that are summed have it: then the copies are the same primitives
        unit = self.unit if long % self.unit else long
        most = piece_size(self.pixels // unit, max(1, min(scratches) // unit)) * unit
        starts = range(0, self.pixels, most)

        def one(span: Span) -> None:
            given = [self.part(*self.near(tensor, span)) for tensor in reads]
            with self.into(target, span) as part:
                add(span.length, given, part)

        self.work.repeat([Span(start, min(most, self.pixels - start)) for start in starts], one)

    def vector(self, vector: BufferView) -> BufferView:
        """A vector of channels as `vector_desc` describes it; adds a step that repeats it for the pixels of a row."""
        if not self.lie_last or self.unit == 1:
            return vector

        row = self.work.temporary((self.unit * self.channels,), "float32")
        self.work.call(_repeat, vector, row)
        return row

    @property
    def desc(self) -> p.MemoryDesc:
        """Of whole activations, for primitives that treat each element by itself: the matrix, or images in C order."""
        return self.part_desc(self.pixels)

    def part_desc(self, pixels: int) -> p.MemoryDesc:
        """The descriptor of this many pixels, for such primitives."""
        units = pixels // self.unit
        if self.lie_last:
            return memory_descs.dense((units, self.unit * self.channels, 1, 1), str(self.dtype), layouts.CHANNELS_LAST)
        return memory_descs.dense((units, *self.shape[1:]), str(self.dtype))

    @property
    def vector_desc(self) -> p.MemoryDesc:
        """The descriptor of one number for each channel, for such primitives."""
        extent = self.unit * self.channels if self.lie_last else self.channels
        return memory_descs.dense((1, extent, 1, 1), axes=layouts.CHANNELS_LAST)


def _repeat(vector: Array, row: Array) -> None:
    row.reshape(-1, vector.size)[...] = vector


def read_through(tensor: Activations) -> Activations:
    """What to read once all pixels of a tensor were: its copy, if they were left in one."""
    return tensor.copy if isinstance(tensor, Pitched) and tensor.copy is not None else tensor


def _side_by_side(pixels: int, channels: int, least: int) -> int:
    """How many pixels a row has: a divisor that makes enough columns, a multiple of 16 of them if that can be."""
    most = max(1, 2 * least // channels)
    divisors = [n for n in range(1, min(pixels, most) + 1) if pixels % n == 0]
    even = [n for n in divisors if n * channels % 16 == 0] or divisors
    return next((n for n in even if n * channels >= least), even[-1])
