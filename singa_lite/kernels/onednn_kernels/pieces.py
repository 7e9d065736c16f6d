"""How long pieces are: all of one length where that can be, as each length wants primitives of its own.

A primitive takes 12 to 32 KiB, and a net has hundreds of calls that go over their tensors piece by piece.

    9 things, at most 4 at a time:     | 3 | 3 | 3 |      one length
    10 things, at most 4 at a time:    | 4 | 4 | 2 |      two: equal ones, of 2, would be 5 pieces
"""

from __future__ import annotations


def piece_size(count: int, most: int) -> int:
    """How many of `count` things to take at a time, at most so many.

    Equal pieces, if these are at most half as many again; else as long as can be, and a shorter one at the end.
    """
    fewest = -(-count // most)
    equal = (count // pieces for pieces in range(fewest, fewest + fewest // 2 + 1) if count % pieces == 0)
    return next(equal, most)
