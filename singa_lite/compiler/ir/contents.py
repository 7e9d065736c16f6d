"""Contents of bytes: who wrote each of them, followed through writes and reads in boxes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from singa_lite.compiler.ir.boxes import Box, cut

#: Bytes of one writer, a number: their addresses, and their indices among the bytes that it wrote.
Piece = tuple[int, Box]


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

    def put(self, box: Box, pieces: Sequence[Piece]) -> None:
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
