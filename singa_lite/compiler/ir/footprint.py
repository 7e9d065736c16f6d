"""Footprints: which bytes an operand covers, in which order, and whether two operands share any."""

from __future__ import annotations

from collections.abc import Mapping

from singa_lite.compiler.ir.boxes import Box, cut
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.remembered import remembered
from singa_lite.tensor import Shape


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
