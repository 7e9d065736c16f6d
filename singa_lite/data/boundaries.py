"""Lengths to pad sequences to: as few as asked for, with the least padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.checks import goes_through, integer, is_int

Lengths = NDArray[np.int64]

#: So many different lengths are told apart; where there are more, some stand for those below them.
_CANDIDATES = 512


def boundaries(where: str, given: object, lengths: Lengths) -> tuple[int, ...]:
    """The lengths of the buckets, rising; the last is at least the longest of `lengths`.

    given: these lengths themselves, or how many to choose at most. TypeError or ValueError for anything else, and where
    a sequence is longer than the last.
    """
    if is_int(given):
        return best_boundaries(lengths, integer(where, given, 1))
    if not goes_through(given) or not isinstance(given, Sequence | np.ndarray) or not len(given):
        raise TypeError(f"{where}: wanted lengths in rising order, or how many to choose, received {given!r:.100}")
    found = tuple(integer(where, each, 1) for each in given)
    if list(found) != sorted(set(found)):
        raise ValueError(f"{where}: wanted lengths in rising order, received {list(found)}")
    longest = int(lengths.argmax())
    if lengths[longest] > found[-1]:
        raise ValueError(
            f"{where}: wanted a last length of at least that of the longest sequence, {lengths[longest]} of number "
            f"{longest}, received {found[-1]}"
        )
    return found


def best_boundaries(lengths: Lengths, count: int) -> tuple[int, ...]:
    """At most `count` lengths with the least padding in all, where each sequence goes up to the next one.

    By dynamic programming over the lengths that occur: the padding of a bucket from one of them to another is a
    difference of running sums.
    """
    sizes, numbers = _candidates(lengths)
    samples = np.concatenate([[0], np.cumsum(numbers)])
    # least[j]: the fewest positions, padding included, of all sequences up to the j-th size, in so many buckets
    least = samples[1:] * sizes
    began: list[Lengths] = []
    for _ in range(min(count, len(sizes)) - 1):
        one_more = np.concatenate([[0], least[:-1]])[None, :] + sizes[:, None] * (
            samples[1:, None] - samples[None, :-1]
        )
        one_more[np.triu_indices(len(sizes), 1)] = np.iinfo(np.int64).max
        began.append(one_more.argmin(axis=1))
        least = one_more.min(axis=1)
    return _walked_back(sizes, began)


def _walked_back(sizes: Lengths, began: list[Lengths]) -> tuple[int, ...]:
    """The last size of each bucket. began: for each number of buckets, by its last size: with which one it begins."""
    last, found = len(sizes) - 1, [int(sizes[-1])]
    for first in reversed(began):
        last = int(first[last]) - 1
        if last < 0:
            break
        found.append(int(sizes[last]))
    return tuple(reversed(found))


def _candidates(lengths: Lengths) -> tuple[Lengths, Lengths]:
    """Lengths that occur, rising, and how many sequences go up to each."""
    sizes = np.unique(lengths)
    if len(sizes) > _CANDIDATES:
        sizes = sizes[np.linspace(0, len(sizes) - 1, _CANDIDATES).round().astype(np.int64)]
    return sizes.astype(np.int64), np.bincount(_ranks(lengths, sizes), minlength=len(sizes)).astype(np.int64)


def _ranks(lengths: Lengths, sizes: Lengths) -> Lengths:
    """Of each sequence the first size that it fits into."""
    return np.searchsorted(sizes, lengths)
