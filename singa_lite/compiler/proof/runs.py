"""Runs: bytes of a value that follow each other in memory, read without regard to the axes that they have.

A gradient of several axes is summed over the ranks as one row of elements, in parts and in strips of parts. Here they
are found again in what was read whole.
"""

from __future__ import annotations

from singa_lite.compiler.ir.footprint import axis_order
from singa_lite.compiler.ir.operation import Operand
from singa_lite.compiler.proof.values import MixedRegion, Numbers, Piece, Region, region_of


def run_in(numbers: Numbers, value: int, whole: int, full: Operand) -> tuple[int, int] | None:
    """From which element of a whole value to below which another one lies in it; None where it does not.

    full: the operand over which the whole was read, of one axis.
    """
    key, of, item = numbers.keys[value], numbers.keys[whole], full.dtype.itemsize
    if not isinstance(of, MixedRegion) or len(of.region.axes) != 1:
        return None
    found = _part(key, of) if isinstance(key, MixedRegion) else _written(numbers, value, of)
    if found is None or not (of.region.start <= found.start and found.stop <= of.region.stop):
        return None
    start, stop = found.start - of.region.start, found.stop - of.region.start
    return None if start % item or stop % item else (start // item, stop // item)


def _part(part: MixedRegion, of: MixedRegion) -> Region | None:
    """Where a part of a region lies that holds what the region holds there."""
    there = tuple(pair for pair in of.written if _overlap(pair[0], part.region))
    same = (part.written, part.beside) == (there, of.beside)
    return part.region if same and len(part.region.axes) == 1 else None


def _written(numbers: Numbers, value: int, of: MixedRegion) -> Region | None:
    """Where a value, or the one that it is a piece of, was written into a region, and nothing over it."""
    key = numbers.keys[value]
    name = key.value if isinstance(key, Piece) else value
    there = [region for region, written in of.written if written == name and len(region.axes) == 1]
    if len(there) != 1 or sum(_overlap(region, there[0]) for region, _ in of.written) > 1:
        return None
    return _rows(numbers, key, there[0]) if isinstance(key, Piece) else there[0]


def _rows(numbers: Numbers, piece: Piece, region: Region) -> Region | None:
    """Where a piece lies in the region of its value, if that is cut along the outermost axis."""
    made = numbers.makers.get(piece.value)
    if made is None or axis_order(made[1].shape, made[1].strides)[:1] != (piece.axis,):
        return None
    if region_of(made[1]).axes != region.axes:
        return None
    row = made[1].nbytes // piece.extent
    start, nbytes = region.start + piece.start * row, (piece.stop - piece.start) * row
    return Region(start, ((nbytes, 1),))


def _overlap(one: Region, other: Region) -> bool:
    return one.start < other.stop and other.start < one.stop
