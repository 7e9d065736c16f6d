"""Values: what the operations of a program compute, by number, so that equal values have equal numbers.

    3: y = conv2d(x, w)        y is what `conv2d` makes of values 0 and 1, wherever it lies: value 2
    4: z = relu(y)             z is what `relu` makes of value 2: value 3

Two programs whose calls read the same numbers and leave the same in each held block do the same, whatever their
blocks and their order are. Reads and writes are followed through memory as they come: a value lies in a region of a
block until something is written over it. That takes no thought of which pass did what, and shares nothing with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from singa_lite.common.array_types import DType
from singa_lite.compiler.ir.footprint import axis_order, overlap
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.remembered import remembered
from singa_lite.tensor import Shape

#: (extent, stride) of the axes of a region, outermost first, the bytes of a run last.
Axes = tuple[tuple[int, int], ...]


class Region(NamedTuple):
    """Bytes of a block in the order of memory, whatever axes they have: views of the same bytes are one region."""

    start: int
    axes: Axes

    @property
    def stop(self) -> int:
        """Behind the last byte."""
        return self.start + 1 + sum((extent - 1) * stride for extent, stride in self.axes)


class Form(NamedTuple):
    """How a call sees an operand, wherever it lies: elements are told apart by their indices and these."""

    shape: Shape
    dtype: DType
    order: tuple[int, ...]


def region_of(operand: Operand) -> Region:
    """The bytes of an operand."""
    return Region(operand.offset, _axes(operand.shape, operand.strides, operand.dtype.itemsize))


@remembered(4096)
def _axes(shape: Shape, strides: Shape, itemsize: int) -> Axes:
    axes = [(itemsize, 1)]
    for axis in reversed(axis_order(shape, strides)):
        extent, stride = axes[-1]
        if strides[axis] == extent * stride:
            axes[-1] = shape[axis] * extent, stride
        else:
            axes.append((shape[axis], strides[axis]))
    return tuple(reversed(axes))


def form_of(operand: Operand) -> Form:
    """The form of an operand."""
    return Form(operand.shape, operand.dtype, axis_order(operand.shape, operand.strides))


class Written(NamedTuple):
    """A value in a block. operand: over which it was written."""

    region: Region
    value: int
    operand: Operand


@dataclass(frozen=True, slots=True)
class OperationValue:
    """The value that an operation made. number: no other value has it."""

    number: int


@dataclass(frozen=True, slots=True)
class Start:
    """The value that a region held before the first operation. block: -1 for one that the step makes, which held
    nothing.
    """

    block: int
    region: Region


@dataclass(frozen=True, slots=True)
class MixedRegion:
    """A region over which several values were written, or a part of one. beside: the block whose first bytes are there
    where nothing was; -1: nothing.
    """

    written: tuple[tuple[Region, int], ...]
    region: Region
    beside: int


@dataclass(frozen=True, slots=True)
class Piece:
    """The elements of a value from start to below stop along an axis of this extent."""

    value: int
    axis: int
    start: int
    stop: int
    extent: int


@dataclass(frozen=True, slots=True)
class Sum:
    """Of a value that is a sum over so many rows, what those from start to below stop give."""

    value: int
    start: int
    stop: int
    rows: int


#: What a value is.
What = OperationValue | Start | MixedRegion | Piece | Sum


class Numbers:
    """The numbers of values, by what they are, and who made them."""

    def __init__(self) -> None:
        self._numbers: dict[What, int] = {}
        self.keys: list[What] = []
        #: {value: (the instruction that first wrote it, its operand)}
        self.makers: dict[int, tuple[Instruction, Operand]] = {}

    def of(self, key: What) -> int:
        """The number of what is so described."""
        number = self._numbers.setdefault(key, len(self.keys))
        if number == len(self.keys):
            self.keys.append(key)
        return number

    def new(self) -> int:
        """A number of its own."""
        return self.of(OperationValue(len(self.keys)))


class Memory:
    """The values in memory while the instructions of one program are followed. sizes: as of `Program`."""

    def __init__(self, numbers: Numbers, sizes: dict[int, int]) -> None:
        self.numbers, self.sizes = numbers, sizes
        #: {block that was written: its values, the newest last}.
        self.blocks: dict[int, list[Written]] = {}

    def read(self, operand: Operand) -> int:
        """The value that an operand has now."""
        region = region_of(operand)
        there = self.blocks.get(operand.block, [])
        if there and there[-1].region == region:
            return there[-1].value
        parts = [one for one in there if share_bytes(one.operand, operand)]
        if parts and parts[-1].region == region:
            return parts[-1].value
        if not parts:
            return self.numbers.of(Start(self._held(operand.block), region))
        found = parts if _overlap(parts) else sorted(parts)
        written = tuple((one.region, one.value) for one in found)
        return self.numbers.of(MixedRegion(written, region, self._held(operand.block)))

    def _held(self, block: int) -> int:
        """The block, if it held something before the first instruction; -1 of one that the step makes."""
        return -1 if block in self.sizes else block

    def write(self, operand: Operand, value: int) -> None:
        """The operand has this value from here on."""
        region = region_of(operand)
        there = self.blocks.setdefault(operand.block, [])
        if len(region.axes) == 1:  # a run: what lies within it is gone
            there[:] = [
                one for one in there if not (region.start <= one.region.start and one.region.stop <= region.stop)
            ]
        else:
            there[:] = [one for one in there if one.region != region]
        there.append(Written(region, value, operand))

    def left(self, block: int) -> tuple[tuple[Region, int], ...]:
        """All that was written in a block and is there still."""
        there = self.blocks.get(block, [])
        return tuple((one.region, one.value) for one in (there if _overlap(there) else sorted(there)))


def share_bytes(one: Operand, other: Operand) -> bool:
    """Whether two operands over one block have a byte in common."""
    mine, theirs = region_of(one), region_of(other)
    if mine.stop <= theirs.start or theirs.stop <= mine.start:
        return False
    if len(mine.axes) == len(theirs.axes) == 1:
        return True
    return overlap(one, other, {})


def _overlap(written: Sequence[Written]) -> bool:
    """Whether some of them lie over others, so that their order counts."""
    return any(share_bytes(a.operand, b.operand) for i, a in enumerate(written) for b in written[:i])
