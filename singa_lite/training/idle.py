"""A rank without samples in a step: it does the step of one sample that counts nothing, and adds zeros to all sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from singa_lite.arrays import host_array
from singa_lite.training.batch import Shaped, says_shape


class Given(NamedTuple):
    """A batch as it was given, or what stands for it. is_idle: whether it had no samples."""

    x: object
    y: object
    sample_weight: object
    is_idle: bool


def given(x: object, y: object, sample_weight: object) -> Given:
    """The batch itself, or a sample in the place of none: zeros, which every layer takes, and targets of 0 or 1."""
    arrays = [*_all(x), *_all(y)]
    if not arrays or any(_count(array) for array in arrays):  # what does not fit together is told by whoever checks it
        return Given(x, y, sample_weight, False)
    return Given(_one(x, 0), _one(y, 1), None, True)


def _all(named: object) -> list[object]:
    found = [*named.values()] if isinstance(named, Mapping) else [named]
    return [array for array in found if array is not None]


def _count(array: object) -> int:
    found = _shaped(array).shape
    return found[0] if found else 1


def _one(named: object, value: int) -> object:
    """One sample of each array. value: of floats; ids are 0, which is always one."""
    if isinstance(named, Mapping):
        return {name: _one(array, value) for name, array in named.items()}
    if named is None:
        return None
    shaped = _shaped(named)
    dtype = np.dtype(str(shaped.dtype).removeprefix("torch."))
    return np.full((1, *shaped.shape[1:]), value if dtype.kind == "f" else 0, dtype)


def _shaped(array: object) -> Shaped:
    return array if says_shape(array, "") else host_array("batch", array)
