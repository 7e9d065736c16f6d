"""All that a step takes of a pool: held blocks, the arena, and what the pool adds; and what a budget leaves."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.runtime.segments import SEGMENT_BYTES, SHARED_BYTES

#: Losses, metrics and their copies that are held at a time: one line of the pool each.
RESULTS = 16


def overhead(held: Sequence[int], arena: int, alignment: int) -> int:
    """What the pool adds: results, regions in whole lines, and what stays free in segments that small ones share.

    held: bytes of each block outside the arena; alignment: of the pool's regions. How regions share segments depends on
    the order in which they came; one segment is counted beside what is free at best.
    """
    regions = [nbytes + -nbytes % alignment for nbytes in (*held, arena)]
    taken = sum(regions) + RESULTS * alignment
    free = _free_of_shared(regions) + SEGMENT_BYTES if taken > SEGMENT_BYTES else 0
    return taken + free - sum(held) - arena


def arena_within(budget: int, held: Sequence[int], alignment: int) -> int:
    """The most bytes, a multiple of the alignment, of an arena with which the total is at most the budget; else 0.

    The total leaps by more than a segment where one is no longer enough for all.
    """
    arena, in_one = (budget - sum(held)) // alignment * alignment, _arena_in_one_segment(budget, held, alignment)
    while arena > in_one:
        excess = sum(held) + arena + overhead(held, arena, alignment) - budget
        if excess <= 0:
            return arena
        arena -= -(-excess // alignment) * alignment
    return in_one


def _arena_in_one_segment(budget: int, held: Sequence[int], alignment: int) -> int:
    """Of an arena with which everything shares one segment; 0 if none does."""
    regions = sum(nbytes + -nbytes % alignment for nbytes in held) + RESULTS * alignment
    return max(0, (min(budget, SEGMENT_BYTES) - regions) // alignment * alignment)


def least_total(held: Sequence[int], arena: int, alignment: int) -> int:
    """All of it without what may come on top, what a bad order of regions leaves free in segments."""
    regions = [nbytes + -nbytes % alignment for nbytes in (*held, arena)]
    taken = sum(regions) + RESULTS * alignment
    return taken + (_free_of_shared(regions) if taken > SEGMENT_BYTES else 0)


def _free_of_shared(regions: list[int]) -> int:
    """Bytes left over in segments that small regions share, each in the first where it fits, largest first."""
    left: list[int] = []
    for size in sorted((size for size in regions if size < SHARED_BYTES), reverse=True):
        segment = next((segment for segment, room in enumerate(left) if room >= size), len(left))
        if segment == len(left):
            left.append(SEGMENT_BYTES)
        left[segment] -= size
    return sum(left)
