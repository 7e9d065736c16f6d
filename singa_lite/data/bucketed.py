"""Bucketed: sequences of unequal lengths, in batches whose sequences are padded to one of a few lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.array_types import Array
from singa_lite.common.arrays import host_array, kind, numbers
from singa_lite.common.checks import goes_through, integer, is_int
from singa_lite.common.errors import ShapeError

#: The numbers of some sequences.
Numbers = NDArray[np.int64]


class Group(NamedTuple):
    """A batch to be: the numbers of its sequences, and the length that they are padded to."""

    length: int
    numbers: Numbers


@dataclass(eq=False, repr=False)
class Bucketed:
    """The batches of sequences in buckets that `bucketed` makes. Nothing is copied before its batch is asked for, so
    the sequences are to stay as they are.

    count: sequences; boundaries: lengths of the buckets, rising; sizes: how many sequences a batch of each has;
    tokens: whether there is a target for each token. len() is the number of batches in an epoch.

    A batch is (x, y): x (n, length) of ids, `padding` behind a sequence's end; y (n, length), `ignore_index` there, or
    (n, ...), a target each sequence. Each sequence is in one batch of an epoch. What is left of a bucket, too few for
    a batch, goes into batches of the next longer one, so that there is but one batch of another size, at the end.

    >>> texts = [np.arange(1, length + 1) for length in (3, 5, 4, 9)]
    >>> batches = data.bucketed(texts, np.array([0, 1, 1, 0]), batch_size=2, boundaries=[5, 10])
    >>> batches.count, batches.boundaries, len(batches)
    (4, (5, 10), 2)
    """

    x: list[Array]
    y: list[Array] | Array
    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    padding: int
    ignore_index: int
    seed: int

    def __post_init__(self) -> None:
        self.count = len(self.x)
        self.lengths = np.array([len(sequence) for sequence in self.x])
        self.dtype = np.result_type(*{sequence.dtype for sequence in self.x})
        self._bucket = np.searchsorted(self.boundaries, self.lengths)

    @property
    def tokens(self) -> bool:
        """Whether there is a target for each token."""
        return isinstance(self.y, list)

    def __len__(self) -> int:
        return sum(count for _, _, count in self._shares())

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """All batches, in the order of the data."""
        return map(self.batch, self.groups(None))

    def epoch(self, number: int) -> Iterator[tuple[Array, Array]]:
        """All batches, in an order that `seed` and the epoch's number say."""
        random = np.random.default_rng([self.seed, integer("Bucketed epoch", number, 0)])
        return map(self.batch, self.groups(random.permutation(self.count)))

    @property
    def forms(self) -> list[tuple[int, int]]:
        """(sequences, length) of all batches that there are, each once."""
        found = [(size, length) for size, length, count in self._shares() if count]
        return sorted(set(found), key=lambda form: (form[1], -form[0]))

    @property
    def padded(self) -> float:
        """The share of an epoch's positions that is padding."""
        positions = sum(size * length * count for size, length, count in self._shares())
        return 1 - int(self.lengths.sum()) / positions

    def _shares(self) -> Iterator[tuple[int, int, int]]:
        """(sequences of a batch, length, batches in an epoch), the last one perhaps of fewer sequences."""
        left = 0
        own = np.bincount(self._bucket, minlength=len(self.sizes))
        for size, length, count in zip(self.sizes, self.boundaries, own, strict=True):
            batches, left = divmod(int(count) + left, size)
            yield size, length, batches
        if left:
            yield left, self.boundaries[-1], 1

    def groups(self, order: Array | None) -> Iterator[Group]:
        """The batches of an epoch, each as soon as it is full. order: of all sequences, int (count,)."""
        waiting: list[list[int]] = [[] for _ in self.sizes]
        for number in range(self.count) if order is None else order.tolist():
            bucket = int(self._bucket[number])
            waiting[bucket].append(number)
            if len(waiting[bucket]) == self.sizes[bucket]:
                yield Group(self.boundaries[bucket], np.array(waiting[bucket]))
                waiting[bucket] = []
        left: list[int] = []
        for own, size, length in zip(waiting, self.sizes, self.boundaries, strict=True):
            left += own
            while len(left) >= size:
                yield Group(length, np.array(left[:size]))
                left = left[size:]
        if left:
            yield Group(self.boundaries[-1], np.array(left))

    def batch(self, group: Group) -> tuple[Array, Array]:
        """(x, y) of some sequences, padded."""
        x = _padded(self.x, group, self.padding, self.dtype)
        if isinstance(self.y, list):
            return x, _padded(self.y, group, self.ignore_index, np.dtype(np.int64))
        return x, self.y[group.numbers]


def bucketed(
    x: Sequence[object],
    y: object,
    batch_size: int | None = None,
    *,
    batch_tokens: int | None = None,
    boundaries: int | Sequence[int] = 8,
    padding: int = 0,
    ignore_index: int = -100,
    seed: int = 0,
) -> Bucketed:
    """Returns batches of sequences of unequal lengths, for `net.fit(data, epochs=...)`, `net.evaluate(data)` and loops
    of one's own.

    x: a list of arrays (length,) of ids, of any integer dtype, each of at least one. y: a list of arrays like x's, a
    target each token, or one array (sequences, ...), a target each sequence. batch_size: sequences of a batch; or
    batch_tokens: the most positions of a batch, padding included, so that short sequences come in larger batches.
    boundaries: the lengths to pad to, rising, the last at least the longest sequence's; or how many to choose at most:
    those with the least padding in all. padding: the id behind a sequence's end; ignore_index: the target there, that
    of the loss. seed: of the order of `Bucketed.epoch`; `fit` draws its own.

    TypeError for what are no sequences of integers, ShapeError for an empty one and for targets that are not as many,
    ValueError for numbers that make no sense; the message names the sequence.

    >>> texts = [np.arange(1, length + 1) for length in (3, 5, 4, 9)]
    >>> batches = data.bucketed(texts, np.array([0, 1, 1, 0]), batch_size=2, boundaries=[5, 10])
    >>> sorted(x.shape for x, y in batches.epoch(0))
    [(2, 5), (2, 10)]
    """
    sequences = _sequences("bucketed: sequence", x)
    targets = _targets(y, sequences)
    lengths = np.array([len(sequence) for sequence in sequences])
    found = checked_boundaries("bucketed boundaries", boundaries, lengths)
    largest = np.iinfo(np.result_type(*{sequence.dtype for sequence in sequences})).max
    return Bucketed(
        sequences,
        targets,
        found,
        _sizes(batch_size, batch_tokens, found),
        integer("bucketed padding", padding, 0, int(largest)),
        _id("bucketed ignore_index", ignore_index),
        integer("bucketed seed", seed, 0),
    )


def _sequences(what: str, given: object) -> list[Array]:
    """The arrays of a list of them."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise TypeError(f"{what}s: wanted a list of arrays of ids, received {kind(given)}")
    if not len(given):
        raise ShapeError(f"{what}s: wanted at least one, received none")
    return [_sequence(f"{what} {number}", each) for number, each in enumerate(given)]


def _sequence(where: str, given: object) -> Array:
    array = numbers(where, given)
    if array.ndim != 1 or not array.size:
        raise ShapeError(f"{where}: wanted a shape (length,) of at least one, received {array.shape}")
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        raise TypeError(f"{where}: wanted ids, integers of at most 63 bits, received {array.dtype}")
    return array


def _targets(given: object, sequences: list[Array]) -> list[Array] | Array:
    """Those of each token, as a list, or of each sequence, as one array."""
    if isinstance(given, list | tuple) and given and np.ndim(given[0]):
        targets = _sequences("bucketed: target", given)
        _check_count(len(targets), sequences)
        for number, (target, sequence) in enumerate(zip(targets, sequences, strict=True)):
            if len(target) != len(sequence):
                raise ShapeError(
                    f"bucketed: target {number}: wanted one for each of the {len(sequence)} tokens of sequence "
                    f"{number}, received {len(target)}"
                )
        return targets
    array = host_array("bucketed: targets", given)
    if not array.ndim:
        raise ShapeError(f"bucketed: targets: wanted one for each sequence or token, received shape {array.shape}")
    _check_count(len(array), sequences)
    return array


def _check_count(count: int, sequences: list[Array]) -> None:
    if count != len(sequences):
        raise ShapeError(f"bucketed: targets: wanted those of {len(sequences)} sequences, received {count}")


def _sizes(batch_size: int | None, batch_tokens: int | None, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """Sequences of a batch, for each length."""
    if (batch_size is None) == (batch_tokens is None):
        raise ValueError(
            f"bucketed: wanted batch_size or batch_tokens, received {'both' if batch_size is not None else 'neither'}"
        )
    if batch_size is not None:
        return (integer("bucketed batch_size", batch_size, 1),) * len(lengths)
    most = integer("bucketed batch_tokens", batch_tokens or 0, lengths[-1])
    return tuple(most // length for length in lengths)


def _id(where: str, given: object) -> int:
    if not is_int(given):
        raise TypeError(f"{where}: wanted an integer, received {given!r:.100}")
    return int(given)


def _padded(sequences: list[Array], group: Group, padding: int, dtype: np.dtype[np.generic]) -> Array:
    """(n, length) of some of the sequences."""
    batch = np.full((len(group.numbers), group.length), padding, dtype)
    for row, number in zip(batch, group.numbers, strict=True):
        row[: len(sequences[number])] = sequences[number]
    return batch


Lengths = NDArray[np.int64]

#: So many different lengths are told apart; where there are more, some stand for those below them.
_CANDIDATES = 512


def checked_boundaries(where: str, given: object, lengths: Lengths) -> tuple[int, ...]:
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
    return sizes.astype(np.int64), np.bincount(np.searchsorted(sizes, lengths), minlength=len(sizes)).astype(np.int64)
