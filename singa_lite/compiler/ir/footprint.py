"""Footprints: the bytes that an operand covers, in their order; and contents: who wrote the bytes of a span."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from singa_lite.compiler.ir.boxes import Box, cut
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.remembered import remembered
from singa_lite.tensor import Shape

#: Bytes of one writer, a number: their addresses, and their indices among the bytes that it wrote.
Piece = tuple[int, Box]


@remembered(1024)
def axis_order(shape: Shape, strides: Shape) -> tuple[int, ...]:
    """The axes of more than one element and a stride, by falling stride; of equal strides in the order of the shape.

    The stride of an axis of extent 1 says nothing, and an axis of stride 0 has one element in memory.
    """
    telling = [axis for axis, extent in enumerate(shape) if extent != 1 and strides[axis]]
    return tuple(sorted(telling, key=lambda axis: -strides[axis]))


def boxes(operand: Operand, base: int = 0) -> list[Box]:
    """The operand's bytes by address in its block, from `base` on, and by index, in bytes, as `axis_order` counts them.

    It is one box, unless elements share bytes or an axis reaches into the steps of another.
    """
    found = _boxes(operand.shape, operand.strides, operand.dtype.itemsize)
    return [box.moved(base + operand.offset) for box in found]


@remembered(1024)
def _boxes(shape: Shape, strides: Shape, itemsize: int) -> list[Box]:
    found, index = [run(0, itemsize)] if 0 not in shape else [], itemsize
    for axis in reversed(axis_order(shape, strides)):
        extent, stride = shape[axis], strides[axis]
        if all(box.end - box.at[0] <= stride for box in found):
            found = [box.repeated(extent, (stride, index)) for box in found]
        else:
            copies = [(i * stride, i * index) for i in range(extent)]
            found = [Box((box.at[0] + by, box.at[1] + to), box.axes) for by, to in copies for box in found]
        index *= extent
    return found


def run(start: int, length: int) -> Box:
    """That many bytes one behind the other, by address, and by index among themselves."""
    return Box((start, 0), ()).repeated(length, (1, 1))


def span_of(operand: Operand, offsets: Mapping[int, int]) -> tuple[int, int]:
    """The span of bytes that the block lies in (-1: the arena) and where in it."""
    return (-1, offsets[operand.block]) if operand.block in offsets else (operand.block, 0)


def coincide(a: Operand, b: Operand, offsets: Mapping[int, int]) -> bool:
    """Whether each element of one has the bytes of the same element of the other."""
    (span, base), (other, other_base) = span_of(a, offsets), span_of(b, offsets)
    return (span, base + a.offset, a[1:4]) == (other, other_base + b.offset, b[1:4])


def overlap(a: Operand, b: Operand, offsets: Mapping[int, int]) -> bool:
    """Whether they share a byte."""
    (span, base), (other, other_base) = span_of(a, offsets), span_of(b, offsets)
    if span != other:
        return False
    return any(cut(one, two)[0] for one in boxes(a, base) for two in boxes(b, other_base))


def moves_bytes(instruction: Instruction) -> bool:
    """Whether it is a copy that neither repeats elements, nor converts them, nor changes the order of the axes."""
    if instruction.kernel != "copy":
        return False
    (x,), (y,) = instruction.reads, instruction.writes
    return (x.shape, x.dtype) == (y.shape, y.dtype) and axis_order(x.shape, x.strides) == axis_order(y.shape, y.strides)


class Contents:
    """The contents of a span of bytes: pieces that share no byte, in groups that do not reach into each other.

    The boxes of the pieces are numbered by address and by index in what was written.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.groups: list[list[Piece]] = []

    def pieces(self) -> list[Piece]:
        """All that was written and not overwritten."""
        return [piece for group in self.groups for piece in group]

    def overwrite(self, box: Box, pieces: Sequence[Piece]) -> None:
        """Overwrite the bytes of the box with these pieces, which lie in it; with none, forget what they held."""
        reached = self._reached(box)
        kept = [(writer, left) for group in self.groups[reached] for writer, old in group for left in cut(old, box)[1]]
        starts: list[int] = []
        ends: list[int] = []
        groups: list[list[Piece]] = []
        for piece in sorted([*kept, *pieces], key=lambda piece: piece[1].at[0]):
            start, end = piece[1].at[0], piece[1].end
            if ends and start < ends[-1]:
                groups[-1].append(piece)
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)
                groups.append([piece])
        self.starts[reached], self.ends[reached], self.groups[reached] = starts, ends, groups

    def get(self, box: Box) -> tuple[list[Piece], list[Box]]:
        """The pieces in a box (address, index), numbered by its index; and the bytes that nobody wrote, as boxes."""
        reached = [piece for group in self.groups[self._reached(box)] for piece in group]
        found = [(writer, part.seen(2, 1)) for writer, old in reached for part in cut(old, box)[0]]
        if sum(part.size for _, part in found) == box.size:
            return found, []
        rest = [box]
        for _, old in reached:
            rest = [left for part in rest for left in cut(part, old)[1]]
        return found, rest

    def _reached(self, box: Box) -> slice:
        """Groups that reach between the ends of the box."""
        return slice(bisect_right(self.ends, box.at[0]), bisect_left(self.starts, box.end))


def renamed(pieces: Sequence[Piece], box: Box) -> list[Piece]:
    """What a box (address, index) holds once these pieces, numbered by index, were copied to it."""
    by_index = box.seen(1, 0)
    return [(writer, part.seen(2, 1)) for writer, piece in pieces for part in cut(piece, by_index)[0]]


def name_same_bytes(some: Sequence[Piece], others: Sequence[Piece]) -> bool:
    """Whether they name the same bytes, and each of them alike, however they fall into pieces."""
    if sorted(some) == sorted(others):
        return True
    shared = 0
    for writer, box in some:
        for other_writer, other in others:
            for part in cut(box, other)[0]:  # its index in what was written: first as `some` say, then as `others` do
                if writer != other_writer or part.at[1] != part.at[2] or any(a[2] != a[3] for a in part.axes):
                    return False
                shared += part.size
    return shared == sum(box.size for _, box in some) == sum(box.size for _, box in others)
