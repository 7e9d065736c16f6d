"""Ids that name rows or classes, and positions: the error of those that name none, the same in each kernel set that
looks at them.
"""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array


def check_ids(what: str, ids: Array, count: int) -> None:
    """IndexError where one of these ids is not from 0 to below `count`. what: they are, for the message."""
    if ids.size:
        low, high = np.minimum.reduce(ids, axis=None), np.maximum.reduce(ids, axis=None)
        if low < 0 or high >= count:
            first = tuple(np.argwhere((ids < 0) | (ids >= count))[0])
            at = f" at {[int(index) for index in first]}" if first else ""
            raise IndexError(f"{what}: wanted 0 to {count - 1}, received {ids[first]}{at}")


def checked_span(position: Array, count: int, length: int) -> slice:
    """The next `count` places behind the position. IndexError where they are not among `length`."""
    start = int(position[0])
    if not 0 <= start <= length - count:
        raise IndexError(f"position must be in 0..{length - count} for {count} of {length} places, received {start}")
    return slice(start, start + count)
