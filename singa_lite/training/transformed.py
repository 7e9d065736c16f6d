"""Samples that are changed on their way into a batch, each with random numbers of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.arrays import host_array, kind
from singa_lite.errors import DataError, GraphError
from singa_lite.tensor import Shape
from singa_lite.training.samples import Index, Rows

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


class Transformed(Rows):
    """Samples of `source` behind a transform, which the first one is tried with. DataError where it fails."""

    held = False

    def __init__(self, where: str, source: Rows, transform: Transform) -> None:
        self._where, self.source, self._transform = where, source, transform
        first = self._one(np.asarray(source.take(slice(0, 1), True))[0], 0, 0)
        self.shape: Shape = (source.shape[0], *first.shape)
        self.dtype = self._made_as = first.dtype

    def take(self, index: Index, copy: bool = False) -> Array:
        """The samples at `index`, by the random numbers of key 0."""
        numbers = np.arange(self.shape[0])[index]
        return self.of(np.asarray(self.source.take(index, True)), numbers, 0)

    def of(self, samples: Array, numbers: Array, key: int) -> Array:
        """The same samples transformed, in fresh memory. numbers: those of the samples, int (n,). key: the epoch's."""
        made: Array = np.empty((len(samples), *self.shape[1:]), self._made_as)
        for place, (sample, number) in enumerate(zip(samples, numbers.tolist(), strict=True)):
            one = self._one(sample, number, key)
            if one.shape != made.shape[1:] or one.dtype != made.dtype:
                raise DataError(
                    f"{self._where}: transform of sample {number}: wanted {made.shape[1:]} {made.dtype}, as of sample "
                    f"0, received {one.shape} {one.dtype}"
                )
            made[place] = one
        return made

    def _one(self, sample: Array, number: int, key: int) -> Array:
        here = f"{self._where}: transform of sample {number}"
        try:
            made = self._transform(sample, random_of(key, number))
        except Exception as error:
            raise DataError(f"{here}: wanted an array, received {type(error).__name__}: {error}") from error
        return host_array(here, made)


class Job(NamedTuple):
    """What one batch is made of. numbers: its samples', int (n,); samples: those that were read; key: the epoch's."""

    numbers: Array
    samples: dict[str, Array]
    key: int


class Making:
    """Makes the inputs of a batch that are no plain reading: those behind a transform, and those made one by one.

    It goes to worker processes, so it holds nothing but them.
    """

    def __init__(self, inputs: Mapping[str, Rows]) -> None:
        self._transformed = {name: rows for name, rows in inputs.items() if isinstance(rows, Transformed)}
        self._made = {name: stored(rows) for name, rows in inputs.items() if stored(rows).one_by_one}
        self.names = {*self._transformed, *self._made}

    def __call__(self, job: Job) -> dict[str, Array]:
        """The inputs by layer."""
        made = job.samples | {name: np.asarray(rows.take(job.numbers)) for name, rows in self._made.items()}
        for name, rows in self._transformed.items():
            made[name] = rows.of(made[name], job.numbers, job.key)
        return made


def stored(rows: Rows) -> Rows:
    """What is read, before any transform."""
    return rows.source if isinstance(rows, Transformed) else rows
