"""Element-wise work along memory, whatever gaps the tensors have: what has some is taken a cacheful at a time.

    target:  | a b . | c d . |         rows of 2 elements with a pitch of 3, as some columns of a larger tensor lie
    source:  | e f g h |               without gaps
    scratch: | a b c d |               2 rows at a time, in which the target is made and copied out

What is done with each element is what is done without gaps, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from singa_lite.common.array_types import DType
from singa_lite.common.strides import memory_order, ordered_strides
from singa_lite.kernels.kernel_set import Axes, TensorSpec
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.pieces import piece_size
from singa_lite.kernels.onednn_kernels.routine import BufferView, FlatSlice, RowSlice
from singa_lite.kernels.onednn_kernels.sums.line import Line, Steps
from singa_lite.kernels.routine import Temporary

#: Elements that are taken at a time where there are gaps: those of all tensors of a call stay in the caches.
_NEAR = 1 << 18

#: Adds the steps that fill the target from a source that lies as it does; the source may be the target itself.
Fill = Callable[[Steps, TensorSpec], None]


def fill_line(target: TensorSpec, source: TensorSpec, *others: TensorSpec, add: Fill) -> Line | None:
    """Steps that fill the target from a source, which is first copied into it if its axes lie in another order.

    None where the axes of the others lie in another order than those of the target.
    """
    axes = _order(target, *others)
    alike = source.shape == target.shape and layouts.are_of_one_type(source, target)
    if axes is None or not alike or not can_reorder(source):
        return None
    copied = not layouts.lies_in_order(source, axes)
    reads = [target, *others] if copied else [source, *others]
    line = _line(axes, target, reads)
    if copied:
        with line.making():
            line.run(
                p.Reorder(memory_descs.desc_of(source), memory_descs.desc_of(target)), {f.SRC: source, f.DST: target}
            )
    return line.each(lambda steps: add(steps, target if copied else source))


def can_reorder(*tensors: TensorSpec) -> bool:
    """Whether the library can copy these: float32 or bfloat16 tensors without broadcast axes."""
    return all(layouts.are_stored(spec) and all(stride > 0 for stride in spec.strides) for spec in tensors)


def in_one_order(*tensors: TensorSpec) -> bool:
    """Whether all are tensors of one type and shape whose axes lie in one order, perhaps with gaps."""
    return _order(*tensors) is not None


def _order(*tensors: TensorSpec) -> Axes | None:
    """The order that the axes of all tensors have, from the outermost to the innermost."""
    first = tensors[0]
    if not layouts.are_of_one_type(*tensors) or any(tensor.shape != first.shape for tensor in tensors):
        return None
    orders: list[Axes] = [layouts.CHANNELS_LAST] if first.ndim == 4 else []
    orders += [tuple(range(first.ndim)), memory_order(first.shape, first.strides)]
    return next((o for o in orders if all(layouts.lies_in_order(tensor, o) for tensor in tensors)), None)


def _line(axes: Axes, target: TensorSpec, reads: Sequence[TensorSpec]) -> Line:
    """A line whose temporaries are taken but for those of its steps."""
    dense = ordered_strides(target.shape, axes, target.dtype.itemsize)
    tensors = {id(tensor): tensor for tensor in (target, *reads)}.values()
    gapped = [tensor for tensor in tensors if not _has_strides(tensor, dense)]
    if not gapped:
        return Line(target.size, dtype=target.dtype)
    rows = [_rows(tensor, axes) for tensor in gapped]
    if len({row.length for row in rows}) > 1:  # whole tensors have one row in common
        rows = [_Rows(target.size, 0) for _ in gapped]
    line = _GappedLine(target.size, rows[0].length, target.dtype)
    for tensor, row in zip(gapped, rows, strict=True):
        line.take(tensor, row, axes, any(tensor is read for read in reads), tensor is target)
    return line


def _has_strides(tensor: TensorSpec, strides: Sequence[int]) -> bool:
    return all(e == 1 or a == b for e, a, b in zip(tensor.shape, tensor.strides, strides, strict=True))


class _Rows(NamedTuple):
    """A tensor as rows without gaps: elements of a row, and from one row to the next."""

    length: int
    pitch: int


def _rows(tensor: TensorSpec, axes: Axes) -> _Rows:
    """The rows of a tensor whose axes lie in this order; one of all its elements where shorter ones lie unevenly."""
    length, pitch, count = 1, 0, 1
    for axis in reversed(axes):
        extent, step = tensor.shape[axis], tensor.strides[axis] // tensor.dtype.itemsize
        if extent == 1:
            continue
        if not pitch and step == length:
            length *= extent
            continue
        pitch = pitch or step
        if step != pitch * count:
            return _Rows(tensor.size, 0)
        count *= extent
    return _Rows(length, pitch)


class _Gapped:
    """A tensor with gaps, and the scratch for as much of it as is taken at a time."""

    def __init__(self, tensor: TensorSpec, rows: _Rows, axes: Axes, scratch: Temporary) -> None:
        self.tensor, self.rows, self.axes, self.scratch = tensor, rows, axes, scratch
        self._made: dict[tuple[int, bool], p.Reorder] = {}

    def reorder(self, count: int, reads: bool) -> p.Reorder:
        """The primitive that copies so many elements into the scratch, or out of it."""
        if (count, reads) not in self._made:
            self._made[count, reads] = self._new(count, reads)
        return self._made[count, reads]

    def _new(self, count: int, reads: bool) -> p.Reorder:
        (length, pitch), dtype = self.rows, str(self.tensor.dtype)
        if pitch:
            rows = count // length
            apart = p.memory_desc((1, length, 1, rows), (rows * pitch, 1, rows * pitch, pitch), dtype)
            dense = memory_descs.dense((1, length, 1, rows), dtype, layouts.CHANNELS_LAST)
        else:
            apart = memory_descs.desc_of(self.tensor)
            dense = memory_descs.dense(self.tensor.shape, dtype, self.axes)
        return p.Reorder(apart, dense) if reads else p.Reorder(dense, apart)

    def part(self, start: int, count: int) -> BufferView:
        """So many elements of it, whole rows."""
        length, pitch = self.rows
        return RowSlice(self.tensor, start // length, count // length, length, pitch) if pitch else self.tensor


class _GappedLine(Line):
    """A line over tensors of which some have gaps. length: elements of their rows."""

    def __init__(self, size: int, length: int, dtype: DType) -> None:
        super().__init__(size, piece_size(size // length, max(1, _NEAR // length)) * length, dtype)
        self.read: list[_Gapped] = []
        self.written: list[_Gapped] = []

    def take(self, tensor: TensorSpec, rows: _Rows, axes: Axes, is_read: bool, is_written: bool) -> None:
        """State that the tensor has gaps."""
        gapped = _Gapped(tensor, rows, axes, self.temporary((self.piece,), tensor.dtype))
        self.read += [gapped] if is_read else []
        self.written += [gapped] if is_written else []

    def each(self, add: Callable[[Steps], None]) -> Line:
        """As of any line, but in pieces even if there is one step only."""
        with self.making():
            for size in {self.piece, self.size % self.piece} - {0}:
                self._make(size, add)
            self.repeat(range(0, self.size, self.piece), self._add_piece)
        return self

    def _add_piece(self, start: int) -> None:
        for gapped in self.read:
            self._copy(gapped, start, True)
        super()._add_piece(start)
        for gapped in self.written:
            self._copy(gapped, start, False)

    def _copy(self, gapped: _Gapped, start: int, reads: bool) -> None:
        count = min(self.piece, self.size - start)
        part, near = gapped.part(start, count), gapped.scratch.part(0, count, self.dtype)
        source, target = (part, near) if reads else (near, part)
        self.run(gapped.reorder(count, reads), {f.SRC: source, f.DST: target})

    def _piece(self, view: BufferView, start: int) -> BufferView:
        count = min(self.piece, self.size - start)
        near = next((gapped.scratch for gapped in (*self.read, *self.written) if gapped.tensor is view), None)
        if near is not None:
            return near.part(0, count, self.dtype)
        if isinstance(view, TensorSpec) and view.size == self.size:
            return FlatSlice(view, start, count)
        return view
