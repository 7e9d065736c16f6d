"""In which pieces the ids of a prompt are read: few forms to record, and few steps, as each goes over all weights.

A net that keeps keys and values alone may read positions twice: then the last piece begins where it ends with the
prompt, so that all are of one size. One with states reads each once, in pieces that become smaller.
"""

from __future__ import annotations

from collections.abc import Iterator

#: Sizes, the largest first, of a net that may read positions again, and of one that may not.
AGAIN, ONCE = (64, 32, 16, 8, 4, 2, 1), (64, 16, 4, 1)


def sizes(count: int, again: bool) -> list[int]:
    """Those that prompts of up to so many positions are read in."""
    return [size for size in (AGAIN if again else ONCE) if size <= count]


def pieces(count: int, again: bool) -> Iterator[slice]:
    """So many positions, from the first one on."""
    if again and count:
        size = sizes(count, again)[0]
        starts = [*range(0, count - size, size), count - size]
        yield from (slice(start, start + size) for start in starts)
        return
    at = 0
    for size in sizes(count, again):
        while count - at >= size:
            yield slice(at, at + size)
            at += size
