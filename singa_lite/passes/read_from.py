"""The proof that sharing bytes changes no value: every read still gets the last write it got without sharing."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.memory.problem import PlanError
from singa_lite.operation import Instruction, Operand
from singa_lite.passes.program import Program
from singa_lite.tensor import Shape

#: (offset within the operand's elements in bytes, length, who wrote them, offset in what that wrote). Who: a number
#: for each output of an instruction; below 0 for bytes that were there before, -1 where nobody knows what they held.
Piece = tuple[int, int, int, int]


def check_reads(recorded: Program, planned: Program, places: Mapping[int, int]) -> None:
    """PlanError unless the planned program leaves in each held block, byte for byte, what the recorded one does.

    places: {block: offset in the arena} for the planned program; blocks that are not in it have bytes of their own
    there too, as every block has for the recorded one. Each planned instruction must be a recorded one, once, read
    what that reads, and write over what it reads only as its kernel allows. A byte is named by the instruction that
    wrote it and by its place among the elements written, so moved and restrided operands compare equal. Copies that
    the plan left out are seen through: what a copy wrote is named by what it read.
    """
    originals = {i.number: i for i in recorded.instructions}
    for instruction in planned.instructions:
        original = originals.pop(instruction.number, None)
        if original is None:
            raise PlanError(f"{_called(instruction)}: wanted a recorded one, and only once")
        _check_call(original, instruction, places)
    wanted, wanted_memory = _sources(recorded, {}, originals.keys())
    found, memory = _sources(planned, places, ())
    for instruction in planned.instructions:
        pairs = zip(found[instruction.number], wanted[instruction.number], strict=True)
        for position, (received, expected) in enumerate(pairs):
            if received != expected:
                raise PlanError(
                    f"{_called(instruction)}, read {position}: wanted the bytes written as {_unpacked(expected)}, "
                    f"received {_unpacked(received)}"
                )
    for block in (wanted_memory.keys() | memory.keys()) - recorded.sizes.keys() - {-1}:
        left, left_wanted = (m[block].merged() if block in m else [] for m in (memory, wanted_memory))
        if left != left_wanted:
            raise PlanError(f"held block {block}: wanted it left written as {left_wanted[:3]}, received {left[:3]}")


def _called(instruction: Instruction) -> str:
    return f"instruction {instruction.number} ({instruction.kernel}, layer {instruction.layer!r})"


def _check_call(original: Instruction, planned: Instruction, places: Mapping[int, int]) -> None:
    """PlanError unless it is the same call, and its outputs share bytes with its other operands only as allowed."""
    if original is planned:
        return
    forms = [[o and (o.shape, o.dtype) for o in i.operands] for i in (original, planned)]
    if (original.kernel, original.settings) != (planned.kernel, planned.settings) or forms[0] != forms[1]:
        raise PlanError(f"{_called(planned)}: wanted the call {original}, received {planned}")
    signature = SIGNATURES[planned.kernel]
    for name, role, target, before in zip(
        signature.tensors, signature.roles, planned.operands, original.operands, strict=True
    ):
        if target is None or before is None or role == "Read":
            continue
        for other, operand, source in zip(signature.tensors, planned.operands, original.operands, strict=True):
            if operand is None or source is None or other == name or source.block == before.block:
                continue
            allowed = other in signature.overwrites.get(name, ()) and _coincide(target, operand, places)
            if not allowed and _overlap(target, operand, places):
                raise PlanError(f"{_called(planned)}: wanted {name!r} apart from {other!r}, received shared bytes")


def _coincide(a: Operand, b: Operand, places: Mapping[int, int]) -> bool:
    """Whether each element of one has the bytes of the same element of the other."""
    (span, base), (other, other_base) = _span(a, places), _span(b, places)
    return (span, base + a.offset, a[1:4]) == (other, other_base + b.offset, b[1:4])


def _overlap(a: Operand, b: Operand, places: Mapping[int, int]) -> bool:
    """Whether they share a byte."""
    (span, base), (other, other_base) = _span(a, places), _span(b, places)
    if span != other:
        return False
    ends = [(base + at, base + at + length) for at, length in runs(a)]
    ends += [(other_base + at, other_base + at + length) for at, length in runs(b)]
    return any(end > start for (_, end), (start, _) in pairwise(sorted(ends)))


def _sources(
    program: Program, places: Mapping[int, int], left_out: Collection[int]
) -> tuple[dict[int, list[array[int]]], dict[int, _Writes]]:
    """For each instruction, for each of its reads, who wrote each of its bytes; and who did at the end, by span.

    The pieces of a read are packed, eight bytes a number: there are many where tensors are concatenated.
    """
    memory: dict[int, _Writes] = {}
    sources: dict[int, list[array[int]]] = {}
    for instruction in program.instructions:
        reads = [_read(memory, operand, places, operand.block in program.sizes) for operand in instruction.reads]
        sources[instruction.number] = [array("q", chain.from_iterable(pieces)) for pieces in reads]
        through = instruction.number in left_out and _moves_bytes(instruction)
        for index, operand in enumerate(instruction.writes):
            pieces = reads[0] if through else [(0, operand.nbytes, instruction.number * 8 + index, 0)]
            _write(memory, operand, places, pieces)
    return sources, memory


def _unpacked(pieces: array[int]) -> list[Piece]:
    """The first few pieces, for a message."""
    return [(pieces[i], pieces[i + 1], pieces[i + 2], pieces[i + 3]) for i in range(0, min(12, len(pieces)), 4)]


def _moves_bytes(instruction: Instruction) -> bool:
    """Whether it is a copy that neither repeats nor converts."""
    if instruction.kernel != "copy":
        return False
    (x,), (y,) = instruction.reads, instruction.writes
    return x.shape == y.shape and x.dtype == y.dtype


class _Writes:
    """Non-overlapping pieces of one span of bytes: starts rising, and what each holds."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.pieces: list[tuple[int, int, int]] = []  # (end, writer, offset of the start within what it wrote)

    def put(self, start: int, end: int, writer: int, inner: int) -> None:
        """Overwrite [start, end)."""
        first = bisect_right(self.starts, start) - 1
        if first < 0 or self.pieces[first][0] <= start:
            first += 1
        last = bisect_left(self.starts, end)
        kept_starts, kept = [], []
        for index in range(first, last):
            old, (old_end, old_writer, old_inner) = self.starts[index], self.pieces[index]
            if old < start:
                kept_starts.append(old)
                kept.append((start, old_writer, old_inner))
            if old_end > end:
                kept_starts.append(end)
                kept.append((old_end, old_writer, old_inner + end - old))
        place = 1 if kept_starts and kept_starts[0] < start else 0
        kept_starts.insert(place, start)
        kept.insert(place, (end, writer, inner))
        self.starts[first:last] = kept_starts
        self.pieces[first:last] = kept

    def merged(self) -> list[tuple[int, int, int, int]]:
        """(start, end, writer, inner offset) of all that was written, neighbors of one write together."""
        found: list[tuple[int, int, int, int]] = []
        for start, (end, writer, inner) in zip(self.starts, self.pieces, strict=True):
            if found and found[-1][1:3] == (start, writer) and found[-1][3] + start - found[-1][0] == inner:
                found[-1] = (found[-1][0], end, writer, found[-1][3])
            else:
                found.append((start, end, writer, inner))
        return found

    def get(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """(start, end, writer, inner offset) of all that lies in [start, end); writer -1 where nothing was written."""
        index = max(0, bisect_right(self.starts, start) - 1)
        at = start
        while at < end:
            while index < len(self.starts) and self.pieces[index][0] <= at:
                index += 1
            if index == len(self.starts) or self.starts[index] >= end:
                yield at, end, -1, at
                return
            if self.starts[index] > at:
                yield at, self.starts[index], -1, at
                at = self.starts[index]
            piece_end, writer, inner = self.pieces[index]
            stop = min(end, piece_end)
            yield at, stop, writer, inner + at - self.starts[index]
            at = stop


def runs(operand: Operand) -> Iterator[tuple[int, int]]:
    """(start, length) of the operand's bytes in its block, in the order of its elements; contiguous ones together.

    Axes in another order than in memory give runs of single rows or elements.
    """
    starts, length = _runs(operand.shape, operand.strides, operand.dtype.itemsize)
    return ((operand.offset + start, length) for start in starts)


@lru_cache(maxsize=1024)
def _runs(shape: Shape, strides: Shape, itemsize: int) -> tuple[list[int], int]:
    """Starts of the runs, counted from the first element, and the length of each."""
    outer, length = len(shape), itemsize
    while outer and (strides[outer - 1] == length or shape[outer - 1] == 1):
        outer -= 1
        length *= shape[outer]
    starts = [0] if length else []
    for extent, stride in zip(shape[:outer], strides[:outer], strict=True):
        starts = [start + index * stride for start in starts for index in range(extent)]
    return starts, length


def _read(
    memory: dict[int, _Writes], operand: Operand, places: Mapping[int, int], is_intermediate: bool
) -> list[Piece]:
    span, base = _span(operand, places)
    writes = memory.setdefault(span, _Writes())
    pieces: list[Piece] = []
    done = 0
    for start, length in runs(operand):
        for at, end, writer, inner in writes.get(base + start, base + start + length):
            if writer == -1:  # never written: named by the held block that they are in
                writer, inner = -1 if is_intermediate else -2 - operand.block, at - base
            before = pieces[-1] if pieces else None
            offset = done + at - base - start
            if before and before[2] == writer and before[3] + before[1] == inner and before[0] + before[1] == offset:
                pieces[-1] = (before[0], before[1] + end - at, writer, before[3])
            else:
                pieces.append((offset, end - at, writer, inner))
        done += length
    return pieces


def _write(memory: dict[int, _Writes], operand: Operand, places: Mapping[int, int], pieces: Sequence[Piece]) -> None:
    span, base = _span(operand, places)
    writes = memory.setdefault(span, _Writes())
    done, index = 0, 0
    for start, length in runs(operand):
        at = 0
        while at < length:
            offset, size, writer, inner = pieces[index]
            skip = done + at - offset
            take = min(length - at, size - skip)
            writes.put(base + start + at, base + start + at + take, writer, inner + skip)
            at += take
            if skip + take == size:
                index += 1
        done += length


def _span(operand: Operand, places: Mapping[int, int]) -> tuple[int, int]:
    """The span of bytes that the block lies in (-1: the arena) and where in it."""
    return (-1, places[operand.block]) if operand.block in places else (operand.block, 0)
