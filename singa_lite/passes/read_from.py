"""The proof that sharing bytes changes no value: every read still gets the last write it got without sharing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from singa_lite.memory.problem import PlanError
from singa_lite.operation import Instruction, Operand
from singa_lite.tensor import Shape

#: (offset within the operand's elements in bytes, length, number of the writing instruction or -1, its offset)
Piece = tuple[int, int, int, int]


def check_reads(
    recorded: Sequence[Instruction], planned: Sequence[Instruction], places: Mapping[int, int]
) -> None:
    """PlanError unless each planned instruction reads, byte for byte, what the recorded one of its number reads.

    recorded: every block has bytes of its own. places: {block: offset in the arena} for the planned ones; blocks
    that are not in it have bytes of their own there too. A byte is named by the instruction that wrote it and by
    its place among the elements written, so moved and restrided operands compare equal. Copies that the plan left
    out are seen through: what a copy wrote is named by what it read.
    """
    wanted = _sources(recorded, {}, {i.number for i in recorded} - {i.number for i in planned})
    found = _sources(planned, places, set())
    for number, reads in found.items():
        for position, pieces in enumerate(reads):
            if pieces != wanted[number][position]:
                name = next(i for i in planned if i.number == number)
                raise PlanError(
                    f"instruction {number} ({name.kernel}, layer {name.layer!r}), read {position}: wanted the bytes "
                    f"written as {wanted[number][position][:3]}, received {pieces[:3]}"
                )


def _sources(
    instructions: Sequence[Instruction], places: Mapping[int, int], seen_through: set[int]
) -> dict[int, list[list[Piece]]]:
    """For each instruction, for each of its reads, who wrote each of its bytes."""
    memory: dict[int, _Writes] = {}
    sources: dict[int, list[list[Piece]]] = {}
    for instruction in instructions:
        reads = [_read(memory, operand, places) for operand in instruction.reads]
        sources[instruction.number] = reads
        through = instruction.number in seen_through and instruction.kernel == "copy"
        for index, operand in enumerate(instruction.writes):
            pieces = reads[0] if through else [(0, operand.nbytes, instruction.number * 8 + index, 0)]
            _write(memory, operand, places, pieces)
    return sources


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


def _read(memory: dict[int, _Writes], operand: Operand, places: Mapping[int, int]) -> list[Piece]:
    span, base = _span(operand, places)
    writes = memory.setdefault(span, _Writes())
    pieces: list[Piece] = []
    done = 0
    for start, length in runs(operand):
        for at, end, writer, inner in writes.get(base + start, base + start + length):
            # Bytes never written are named by their place in a held block; in the arena that would be an error.
            named = inner if writer >= 0 else at - base
            before = pieces[-1] if pieces else None
            offset = done + at - base - start
            if before and before[2] == writer and before[3] + before[1] == named and before[0] + before[1] == offset:
                pieces[-1] = (before[0], before[1] + end - at, writer, before[3])
            else:
                pieces.append((offset, end - at, writer, named))
        done += length
    return pieces


def _write(
    memory: dict[int, _Writes], operand: Operand, places: Mapping[int, int], pieces: Sequence[Piece]
) -> None:
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
