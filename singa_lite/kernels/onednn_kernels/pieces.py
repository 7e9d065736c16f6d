"""How long pieces are: all of one length where that can be, as each length wants primitives of its own.

A primitive takes 12 to 32 KiB, and a net has hundreds of calls that go over their tensors piece by piece.

    9 things, at most 4 at a time:     | 3 | 3 | 3 |      one length
    10 things, at most 4 at a time:    | 4 | 4 | 2 |      two: equal ones, of 2, would be 5 pieces
"""

from __future__ import annotations


def even(count: int, most: int) -> int:
    """How many of `count` things to take at a time, at most so many.

    Equal pieces, if these are at most half as many again; else as long as can be, and a shorter one at the end.
    """
    fewest = -(-count // most)
    pieces = _divisor(count, fewest, fewest + fewest // 2)
    return count // pieces if pieces else most


def even_part(count: int, parts: int) -> int:
    """How long a part is, of which at most so many make `count` things.

    Equal parts, if these are at most a quarter longer; else as short as can be, and a shorter one at the end.
    """
    shortest = -(-count // parts)
    return _divisor(count, shortest, shortest + shortest // 4) or shortest


def _divisor(count: int, least: int, most: int) -> int:
    """The smallest number from one to the other that divides the count; 0 if there is none."""
    return next((n for n in range(least, most + 1) if count % n == 0), 0)
