"""Boxes: evenly spaced bytes, described by a few numbers however many they are, and what two of them share."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import NamedTuple

#: How many copies there are, and how far apart they are in each space.
Axis = tuple[int, ...]


class Box(NamedTuple):
    """Bytes numbered in several spaces at once, for example by address and by index among the bytes that were written.

    at: the number of the first byte in each space; axes: copies of copies of it, outermost first. In the first
    space the bytes rise in this order: the copies along an axis do not reach into each other.

        Box((8, 0), ((3, 16, 4), (4, 1, 1)))    3 rows, 16 apart by address and 4 by index, of 4 bytes each:

        address  8 9 10 11 ... 24 25 26 27 ... 40 41 42 43
        index    0 1  2  3      4  5  6  7      8  9 10 11
    """

    at: tuple[int, ...]
    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return prod(axis[0] for axis in self.axes)

    @property
    def end(self) -> int:
        """The number behind the last byte in the first space."""
        return self.at[0] + 1 + sum([(axis[0] - 1) * axis[1] for axis in self.axes])

    @property
    def step(self) -> int:
        """How far apart the copies along the outermost axis are in the first space; 0 for a single byte."""
        return self.axes[0][1] if self.axes else 0

    def seen(self, *spaces: int) -> Box:
        """The same bytes in these spaces only, in this order."""
        axes = tuple([(axis[0], *[axis[space + 1] for space in spaces]) for axis in self.axes])
        return Box(tuple([self.at[space] for space in spaces]), _merged(axes))

    def moved(self, by: int) -> Box:
        """As many bytes further on in the first space."""
        return Box((self.at[0] + by, *self.at[1:]), self.axes)

    def repeated(self, count: int, steps: tuple[int, ...]) -> Box:
        """That many copies of it, so far apart in each space."""
        return Box(self.at, _merged(((count, *steps), *self.axes)))

    def copies(self, start: int, stop: int) -> Box:
        """Those copies along the outermost axis, which is left out if there is only one."""
        (_, *steps), inner = self.axes[0], self.axes[1:]
        at = tuple([number + start * step for number, step in zip(self.at, steps, strict=True)])
        return Box(at, inner if stop - start == 1 else ((stop - start, *steps), *inner))


def _merged(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The same axes, those of one copy left out, and evenly nested ones as one."""
    result: list[Axis] = []
    for axis in axes:
        count, *steps = axis
        if count == 1:
            continue
        if result and result[-1][1:] == tuple([count * step for step in steps]):
            result[-1] = (result[-1][0] * count, *steps)
        else:
            result.append(axis)
    return tuple(result)


def cut(a: Box, b: Box) -> tuple[list[Box], list[Box]]:
    """The bytes of `a` that are in `b` too, by their numbers in the first space, and those that are not.

    The shared ones come in the spaces of `a`, then those of `b` but its first. The time goes with the number of
    axes where the steps of one box are multiples of those of the other; where they are not, with the number of
    copies along that axis.
    """
    if a.at[0] == b.at[0] and [axis[:2] for axis in a.axes] == [axis[:2] for axis in b.axes]:
        axes = [(*axis, *other[2:]) for axis, other in zip(a.axes, b.axes, strict=True)]
        return [Box(a.at + b.at[1:], tuple(axes))], []
    if a.step and a.step == b.step:
        return _cut_in_step(a, b)
    near, outside = _reaching(a, b)
    other, _ = _reaching(b, near) if near else (None, [])
    if near is None or other is None:
        return [], [a]
    if not near.axes and not other.axes:
        return [Box(near.at + other.at[1:], ())], outside
    if near.step == other.step:
        shared, rest = _cut_in_step(near, other)
    elif near.step > other.step:
        others = _grouped(other, near.step)
        shared, rest = _cut_all(_copies(near) if others[0] is other else [near], others)
    else:
        pieces = _grouped(near, other.step)
        shared, rest = _cut_all(pieces, _copies(other) if pieces[0] is near else [other])
    return shared, [*[Box(box.at, _merged(box.axes)) for box in rest], *outside]


def _reaching(box: Box, other: Box) -> tuple[Box | None, list[Box]]:
    """The copies in `box` that reach between the ends of `other`, and the rest."""
    lower, upper = other.at[0], other.end
    outside: list[Box] = []
    while box.axes:
        start, (count, step, *_) = box.at[0], box.axes[0]
        reach = box.end - (count - 1) * step - start
        first = max(0, (lower - reach - start) // step + 1)
        stop = min(count, -((start - upper) // step))
        if first >= stop:
            return None, [*outside, box]
        if first > 0:
            outside.append(box.copies(0, first))
        if stop < count:
            outside.append(box.copies(stop, count))
        if first > 0 or stop < count:
            box = box.copies(first, stop)
        if stop - first > 1:
            return box, outside
    return (box, outside) if lower <= box.at[0] < upper else (None, [*outside, box])


def _cut_in_step(a: Box, b: Box) -> tuple[list[Box], list[Box]]:
    """As `cut`, of boxes whose outermost steps are equal: a copy of one meets at most two of the other."""
    (count, *steps), (other_count, *other_steps) = a.axes[0], b.axes[0]
    step = steps[0]
    copies, shift = divmod(b.at[0] - a.at[0], step)
    meetings = []  # (first copy of a, behind the last one, how many copies of a are before the first one of b)
    for before, offset in ((copies, shift), (copies + 1, shift - step)):
        reaches = offset < a.end - a.at[0] - (count - 1) * step and offset + b.end - b.at[0] > (other_count - 1) * step
        first, stop = max(0, before), min(count, before + other_count)
        if reaches and first < stop:
            meetings.append((first, stop, before))
    shared: list[Box] = []
    rest: list[Box] = []
    for start, stop in pairwise(sorted({0, count, *[end for meeting in meetings for end in meeting[:2]]})):
        others = [b.copies(start - m[2], start - m[2] + 1) for m in meetings if m[0] <= start and stop <= m[1]]
        common, left = _cut_all([a.copies(start, start + 1)], others)
        shared += [box.repeated(stop - start, (*steps, *other_steps[1:])) for box in common]
        rest += [box.repeated(stop - start, tuple(steps)) for box in left]
    return shared, rest


def _cut_all(pieces: list[Box], others: list[Box]) -> tuple[list[Box], list[Box]]:
    """As `cut`, of boxes that are in pieces."""
    shared: list[Box] = []
    rest: list[Box] = []
    for piece in pieces:
        left = [piece]
        for other in others:
            cuts = [cut(box, other) for box in left]
            shared += [box for common, _ in cuts for box in common]
            left = [box for _, remaining in cuts for box in remaining]
        rest += left
    return shared, rest


def _grouped(box: Box, step: int) -> list[Box]:
    """The same bytes in boxes with this outermost step; the box itself where there are none.

    Each period begins with as many of its copies as are left over behind the last whole period, so that there are
    two boxes at most, and nothing is left over.
    """
    if not box.axes:
        return [box]
    (count, *steps), inner = box.axes[0], box.axes[1:]
    many, uneven = divmod(step, steps[0])
    if uneven or count <= many:
        return [box]
    whole, left_over = divmod(count, many)
    longer = [many * s for s in steps]

    def periods(repeats: int, first: int, stop: int) -> Box:
        axes = ((repeats, *longer), (stop - first, *steps))
        at = tuple([number + first * s for number, s in zip(box.at, steps, strict=True)])
        return Box(at, (*[axis for axis in axes if axis[0] > 1], *inner))

    rest = periods(whole, left_over, many)
    return [periods(whole + 1, 0, left_over), rest] if left_over else [rest]


def _copies(box: Box) -> list[Box]:
    """Its copies along the outermost axis, one by one."""
    return [box.copies(index, index + 1) for index in range(box.axes[0][0])]
