"""The last samples of arrays as validation data, and the parts of what is given as such."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import NamedTuple, Protocol

import numpy as np

from singa_lite.common.arrays import kind
from singa_lite.common.checks import fraction
from singa_lite.common.errors import ShapeError


class Cuttable(Sized, Protocol):
    """Samples that slices are taken of."""

    def __getitem__(self, index: slice, /) -> object: ...


class TrainingData(NamedTuple):
    """Data that `fit` is given to train on. validation: as its argument, without weights; validation_weight: these."""

    x: object
    y: object
    sample_weight: object
    validation: object
    validation_weight: object


def split(x: object, y: object, sample_weight: object, validation: object, share: float) -> TrainingData:
    """The data, with that share of the samples, the last ones, as validation data; 0: none.

    Of arrays, lists and tables in memory. ValueError beside validation data, and for a share that leaves a part empty;
    TypeError for what cannot be cut.
    """
    share = fraction("fit validation_split", share)
    if not share:
        return TrainingData(x, y, sample_weight, *_parts(validation))
    if validation is not None:
        raise ValueError(f"fit validation_split: wanted none beside validation_data, received {share}")
    whole = {"x": x, "y": y, "sample_weight": sample_weight}
    counts = {len(each) for name, given in whole.items() for each in _arrays(name, given)}
    if len(counts) != 1:
        raise ShapeError(f"fit validation_split: wanted equally many samples in each array, received {sorted(counts)}")
    count = counts.pop()
    at = int(count * (1 - share))
    if not 0 < at < count:
        raise ValueError(f"fit validation_split: wanted samples on both sides, received {share} of {count} samples")
    first, last = (
        {name: _cut(name, given, index) for name, given in whole.items()} for index in (slice(0, at), slice(at, count))
    )
    return TrainingData(first["x"], first["y"], first["sample_weight"], (last["x"], last["y"]), last["sample_weight"])


def _parts(validation: object) -> tuple[object, object]:
    """(validation data, weights), the weights being the third of (x, y, sample_weight)."""
    if isinstance(validation, tuple | list) and len(validation) == 3:
        return tuple(validation[:2]), validation[2]
    return validation, None


def _arrays(name: str, given: object) -> list[Cuttable]:
    """What has samples to be cut."""
    found = list(given.values()) if isinstance(given, Mapping) else [] if given is None and name != "x" else [given]
    return [_rows(name, each) for each in found]


def _rows(name: str, given: object) -> Cuttable:
    """What can be cut into slices. A memmap is left on its disk."""
    if isinstance(given, list) or (isinstance(given, np.ndarray) and given.ndim):
        return given
    rows = getattr(given, "iloc", None)
    if rows is None or not isinstance(given, Sized):
        raise TypeError(
            f"fit validation_split: wanted {name} in memory, as arrays, lists or tables, received {kind(given)}; give "
            "validation_data"
        )
    return _Table(rows, len(given))


class _Table:
    """Rows of a pandas table by their number."""

    def __init__(self, rows: Mapping[slice, object], count: int) -> None:
        self._found, self._count = rows, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: slice) -> object:
        return self._found[index]


def _cut(name: str, given: object, index: slice) -> object:
    if isinstance(given, Mapping):
        return {key: _cut(name, each, index) for key, each in given.items()}
    return None if given is None else _rows(name, given)[index]
