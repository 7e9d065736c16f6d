"""Samples that are changed on their way into a batch, each with random numbers of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.arrays import host_array, kind
from singa_lite.common.errors import DataError, GraphError
from singa_lite.data.loading.batch_sources import Gate
from singa_lite.data.loading.samples import ArraySource, Index, Sliceable
from singa_lite.tensor import Shape

#: So many samples of a batch are compared with those behind them.
_LOOKED_AT = 4
#: transform(sample, random): another sample.
Transform: TypeAlias = "Callable[[Array, np.random.Generator], object]"  # text: numpy.random takes time to import


def random_of(key: int, sample: int) -> np.random.Generator:
    """The random numbers of one sample in one epoch, whoever asks, whenever, and in what order.

    By Philox, a counter-based generator: `key` is the epoch's, and each sample has 2**192 counts of its own.
    """
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, sample]))


def checked_transforms(where: str, given: object, inputs: list[str]) -> dict[str, Transform]:
    """Transforms by input layer. given: None, one for a net of one input, or {input layer: transform}.

    TypeError for what cannot be called, GraphError for a name that is no input's.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping) and len(inputs) != 1:
        raise GraphError(f"{where}: wanted a dict of some of the inputs {inputs}, received {kind(given)}")
    named: dict[str, object] = dict(given) if isinstance(given, Mapping) else {inputs[0]: given}
    unknown = sorted(map(str, set(named) - set(inputs)))
    if unknown:
        raise GraphError(f"{where}: wanted some of the inputs {inputs}, received {unknown}")
    found: dict[str, Transform] = {}
    for name, transform in named.items():
        if not callable(transform) or isinstance(transform, type):
            raise TypeError(f"{where}: wanted a function transform(sample, random), received {kind(transform)}")
        found[name] = transform
    return found


class Change:
    """A transform of samples, and the form of what it makes of the first one. It goes to worker processes without data.

    shape, dtype: of one sample behind it. DataError where it fails. A transform that returns one array for several
    samples is called by one thread at a time.
    """

    def __init__(self, where: str, transform: Transform, first: Array) -> None:
        self._where, self._transform = where, transform
        self._gate = Gate()
        made = self._one(first, 0, 0)
        self.shape: Shape = made.shape
        self.dtype = made.dtype

    def __call__(self, samples: Array, numbers: Array, key: int) -> Array:
        """The samples transformed, in fresh memory. numbers: those of the samples, int (n,). key: the epoch's."""
        with self._gate.passed():
            return self._transform_batch(samples, numbers, key)

    def _transform_batch(self, samples: Array, numbers: Array, key: int) -> Array:
        made: Array = np.empty((len(samples), *self.shape), self.dtype)
        first: list[Array] = []  # of the batch, to see whether the transform returns one array again and again
        is_apart = len(samples) > 1
        for place, (sample, number) in enumerate(zip(samples, numbers.tolist(), strict=True)):
            one = self._one(sample, number, key)
            if one.shape != self.shape or one.dtype != self.dtype:
                raise DataError(
                    f"{self._where}: transform of sample {number}: wanted {self.shape} {self.dtype}, as of sample 0, "
                    f"received {one.shape} {one.dtype}"
                )
            made[place] = one
            is_apart = is_apart and not any(np.may_share_memory(one, each) for each in first)
            first = [*first, one][:_LOOKED_AT]
        self._gate.opens = self._gate.opens or is_apart
        return made

    def _one(self, sample: Array, number: int, key: int) -> Array:
        here = f"{self._where}: transform of sample {number}"
        try:
            made = self._transform(sample, random_of(key, number))
        except Exception as error:
            raise DataError(f"{here}: wanted an array, received {type(error).__name__}: {error}") from error
        return host_array(here, made)


class Transformed(ArraySource):
    """Samples of `source` behind a transform, which the first one is tried with. DataError where it fails."""

    held = False

    def __init__(self, where: str, source: ArraySource, transform: Transform) -> None:
        self.source = source
        self.change = Change(where, transform, np.asarray(source.take(slice(0, 1), True))[0])
        self.shape: Shape = (source.shape[0], *self.change.shape)
        self.dtype = self.change.dtype

    def take(self, index: Index, copy: bool = False) -> Array:
        """The samples at `index`, by the random numbers of key 0."""
        numbers = np.arange(self.shape[0])[index]
        return self.change(np.asarray(self.source.take(index, True)), numbers, 0)


class Job(NamedTuple):
    """The making of one batch. numbers: its samples', int (n,); samples: those that were read, or, where samples are
    made one by one, what makes these as it is sliced; key: the epoch's.
    """

    numbers: Array
    samples: dict[str, Array | Sliceable]
    key: int


class BatchMaker:
    """Makes the inputs of a batch that are no plain reading: those behind a transform, and those made one by one.

    It goes to worker processes, so it holds no data: these come with each job. names: of these inputs.
    """

    def __init__(self, inputs: Mapping[str, ArraySource]) -> None:
        self._changes = {name: rows.change for name, rows in inputs.items() if isinstance(rows, Transformed)}
        self.names = {*self._changes, *(name for name, rows in inputs.items() if stored(rows).one_by_one)}

    def __call__(self, job: Job) -> dict[str, Array]:
        """The inputs by layer."""
        made = {name: np.asarray(given[:]) for name, given in job.samples.items()}
        for name, change in self._changes.items():
            made[name] = change(made[name], job.numbers, job.key)
        return made


def stored(rows: ArraySource) -> ArraySource:
    """What is read, before any transform."""
    return rows.source if isinstance(rows, Transformed) else rows
