"""Calls by pieces: what some rows of a call make is those rows of what the whole call makes.

    recorded:   dw = x^T @ dy;  w = sgd(dw, w)
    here:       t = x[:, 0:8]^T @ dy;  w[0:8] = sgd(t, w[0:8]);  the same of rows 8 to 16, and so on

A piece is known by the value that it is of, the axis, and from where to where. When all pieces lie side by side, the
value is there. Sums over rows that are made piece by piece are known likewise: up to which row they go.

A gradient of several axes is summed over the ranks as one row of elements, in parts and in strips of parts: runs, bytes
of a value that follow each other in memory, without regard to its axes. They are found again in what was read whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from singa_lite.compiler.ir.footprint import axis_order
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.splits import Split, splits
from singa_lite.compiler.proof.calls import Call, Calls, Values
from singa_lite.compiler.proof.values import Memory, MixedRegion, Numbers, Piece, Region, Start, Sum, What, region_of
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.interface.state_format import BLOCKED, Blocks

#: Name, role, operand and value that is read; of the whole call the operand, the value before it and that behind it.
_Operands = tuple[str, str, Operand | None, int | None, Operand | None, int | None, int | None]


class Extent(NamedTuple):
    """From where to where, along the axis of a split."""

    start: int
    stop: int


class Pieces:
    """Finds the call of which an instruction does a piece."""

    def __init__(self, calls: Calls) -> None:
        self.calls, self.numbers = calls, calls.numbers
        self._last: dict[str, Call] = {}
        #: Pieces whose elements lie in another order than those of the whole.
        self._turned: set[int] = set()

    def find(self, instruction: Instruction, reads: Values) -> Values | None:
        """What the instruction makes, if it is a piece of a known call; None where it is none."""
        added = self._sum(instruction, reads)
        if added is not None:
            return added
        kernel = "matmul" if instruction.kernel == "matmul_add" else instruction.kernel
        last = self._last.get(kernel)
        for whole in (*([last] if last is not None else []), *self.calls.by_kernel.get(kernel, ())):
            for split in splits(whole.instruction):
                made = self._made(instruction, reads, whole, split)
                if made is not None:
                    self._last[kernel] = whole
                    return made
        return None

    def _sum(self, instruction: Instruction, reads: Values) -> Values | None:
        """Of a sum of two sums over rows that stand one behind the other."""
        if instruction.kernel != "add":
            return None
        first, second = (None if value is None else self.numbers.keys[value] for value in reads[:2])
        if not isinstance(first, Sum) or not isinstance(second, Sum):
            return None
        if first.value != second.value or first.stop != second.start:
            return None
        return None, None, self._sum_of(first.value, Extent(first.start, second.stop), first.rows)

    def _made(self, instruction: Instruction, reads: Values, whole: Call, split: Split) -> Values | None:
        extent = self._extent(instruction, reads, whole, split)
        if extent is None or not _same_settings(instruction, whole.instruction, extent):
            return None
        made: list[int | None] = []
        rows = _rows(whole.instruction, split)
        for name, role, operand, read, full, before, after in _aligned(instruction, reads, whole):
            if (operand is None) != (full is None):
                return None
            if operand is None or full is None:
                made.append(None)
                continue
            axis = split.axes.get(name)
            if axis is None and split.sums and role != "Read" and after is not None:
                if role == "Update" and not self._goes_on(read, before, after, extent):
                    return None
                start = 0 if role == "Update" else extent.start
                made.append(self._sum_of(after, Extent(start, extent.stop), rows))
            elif axis is None:
                if (operand.shape, operand.dtype) != (full.shape, full.dtype) or (role != "Write" and read != before):
                    return None
                made.append(after)
            else:
                cut = _cut(full, axis, extent, whole.instruction)
                if cut != operand.shape or operand.dtype != full.dtype:
                    return None
                made.append(None if after is None else self._piece(after, axis, extent, full, whole.instruction))
                if made[-1] is not None and not _lie_alike(operand, full):
                    self._turned.add(made[-1])
        return tuple(made)

    def _extent(self, instruction: Instruction, reads: Values, whole: Call, split: Split) -> Extent | None:
        """What all that is cut and read is a piece of; where nothing is, by the setting that says so."""
        found: set[Extent | None] = set()
        for name, _, operand, read, full, before, _ in _aligned(instruction, reads, whole):
            if name not in split.axes or full is None or full.dtype == BLOCKED:
                continue
            if operand is not None and read is not None and before is not None:
                found.add(self._piece_of(read, operand, before, full, split.axes[name]))
        if not found and "first" in instruction.settings:
            (index,) = (i for i, name in enumerate(SIGNATURES[instruction.kernel].tensors) if name in split.axes)
            start, operand = instruction.settings["first"], instruction.operands[index]
            if isinstance(start, int) and operand is not None:
                return Extent(start, start + operand.shape[split.axes["dweight"]])
        return found.pop() if len(found) == 1 else None

    def _piece_of(self, value: int, operand: Operand, whole: int, full: Operand, axis: int) -> Extent | None:
        """Which piece of a value an operand is."""
        key = self.numbers.keys[value]
        if value == whole and operand.shape == full.shape:
            return Extent(0, full.shape[axis])
        run = run_in(self.numbers, value, whole, full) if len(full.shape) == 1 else None
        if run is not None and value not in self._turned:
            return Extent(*run)
        if isinstance(key, Piece):
            return Extent(key.start, key.stop) if (key.value, key.axis) == (whole, axis) else None
        lies = self._lies(key, whole, axis, Extent(0, full.shape[axis]))
        if lies is None or len(operand.shape) != len(full.shape) or not operand.strides[axis]:
            return None
        region, there = lies
        start, rest = divmod(operand.offset - region.start, operand.strides[axis])
        extent = Extent(there.start + start, there.start + start + operand.shape[axis])
        shape = tuple(there.stop - there.start if i == axis else e for i, e in enumerate(full.shape))
        covers = full._replace(shape=shape, strides=operand.strides, offset=region.start)
        inside = not rest and start >= 0 and extent.stop <= there.stop and region_of(covers) == region
        return extent if inside else None

    def _lies(self, key: What, whole: int, axis: int, all_of_it: Extent) -> tuple[Region, Extent] | None:
        """Where the whole value lies, or a piece of it, of which a part was read."""
        of = self.numbers.keys[whole]
        if isinstance(key, MixedRegion) and len(key.written) == 1:
            region, value = key.written[0]
            made = self.numbers.keys[value]
            if isinstance(made, Piece) and (made.value, made.axis) == (whole, axis):
                return region, Extent(made.start, made.stop)
            return (region, all_of_it) if value == whole else None
        if isinstance(key, Start) and isinstance(of, Start) and key.block == of.block >= 0:
            return of.region, all_of_it
        return None

    def _piece(self, value: int, axis: int, extent: Extent, full: Operand, instruction: Instruction) -> int:
        start, stop = _bounds(full, extent, instruction)
        return piece(self.numbers, value, axis, start, stop, full.shape[axis])

    def _sum_of(self, value: int, extent: Extent, rows: int) -> int:
        return value if extent == (0, rows) else self.numbers.of(Sum(value, *extent, rows))

    def _goes_on(self, read: int | None, before: int | None, after: int, extent: Extent) -> bool:
        """Whether a sum that is updated goes on from where it was."""
        if extent.start == 0:
            return before is not None and read == before
        so_far = None if read is None else self.numbers.keys[read]
        return isinstance(so_far, Sum) and (so_far.value, so_far.start, so_far.stop) == (after, 0, extent.start)


def piece(numbers: Numbers, value: int, axis: int, start: int, stop: int, extent: int) -> int:
    """The value of a piece; all of it is the value itself."""
    return value if (start, stop) == (0, extent) else numbers.of(Piece(value, axis, start, stop, extent))


def join(memory: Memory, operand: Operand) -> None:
    """Where the value that was written last over an operand goes on from the one before it there, both are one."""
    there = memory.blocks[operand.block]
    while len(there) > 1:
        last, before = there[-1], there[-2]
        one, other = (memory.numbers.keys[each.value] for each in (before, last))
        if not isinstance(one, Piece) or not isinstance(other, Piece):
            return
        value, axis, start, stop, extent = one.value, one.axis, one.start, other.stop, one.extent
        if (other.value, other.axis, other.start) != (value, axis, one.stop):
            return
        upper, lower = before.operand, last.operand
        step = upper.shape[axis] * upper.strides[axis]
        if upper.strides != lower.strides or lower.offset != upper.offset + step:
            return
        shape = tuple(stop - start if i == axis else e for i, e in enumerate(upper.shape))
        del there[-2:]
        memory.write(upper._replace(shape=shape), piece(memory.numbers, value, axis, start, stop, extent))


def _aligned(instruction: Instruction, reads: Values, whole: Call) -> Iterator[_Operands]:
    """The operands of an instruction beside those of the whole call."""
    signature, full = SIGNATURES[instruction.kernel], whole.instruction.operands
    return zip(
        signature.tensors, signature.roles, instruction.operands, reads, full, whole.reads, whole.writes, strict=True
    )


def _lie_alike(part: Operand, full: Operand) -> bool:
    """Whether the axes of a piece follow each other in memory as those of the whole do."""
    order = axis_order(part.shape, part.strides)
    return order == tuple(axis for axis in axis_order(full.shape, full.strides) if axis in order)


def _same_settings(one: Instruction, whole: Instruction, extent: Extent) -> bool:
    """Whether the settings are those of the whole call, but that the piece says where it begins."""
    wanted = dict(whole.settings)
    if wanted.get("first") == 0:
        wanted["first"] = extent.start
    return dict(one.settings) == wanted


def _rows(whole: Instruction, split: Split) -> int:
    """How many rows there are to be cut."""
    return next((o.shape[split.axes[n]] for n, o in whole.by_name.items() if n in split.axes and o is not None), 0)


def _bounds(full: Operand, extent: Extent, update: Instruction) -> Extent:
    """The same piece, counted in groups where state of an update lies in blocks of 8 bits."""
    value = update.by_name.get("value")
    if full.dtype != BLOCKED or value is None:
        return extent
    blocks = Blocks.of(value.shape)
    return Extent(extent.start // blocks.rows, blocks.groups(extent.stop))


def _cut(full: Operand, axis: int, extent: Extent, instruction: Instruction) -> tuple[int, ...]:
    """The shape of a piece."""
    start, stop = _bounds(full, extent, instruction)
    return tuple(stop - start if i == axis else e for i, e in enumerate(full.shape))


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
    return _region_of_rows(numbers, key, there[0]) if isinstance(key, Piece) else there[0]


def _region_of_rows(numbers: Numbers, piece: Piece, region: Region) -> Region | None:
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
