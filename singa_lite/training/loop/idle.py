"""A rank without samples in a step: it does the step of one sample that counts nothing, and adds zeros to all sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Shaped
from singa_lite.common.arrays import host_array
from singa_lite.data.loading.batch import says_shape


class RankBatch(NamedTuple):
    """A batch as it was given, or what stands for it. is_idle: whether it had no samples."""

    x: object
    y: object
    sample_weight: object
    is_idle: bool


def batch_or_idle(x: object, y: object, sample_weight: object, check: Callable[[object, object], object]) -> RankBatch:
    """The batch itself, or a sample in the place of none: zeros, which every layer takes, and targets of 0 or 1.

    check: raises ValueError for targets that losses do not take.
    """
    arrays = [*_all(x), *_all(y)]
    if not arrays or any(_count(array) for array in arrays):  # what does not fit together is told by whoever checks it
        return RankBatch(x, y, sample_weight, False)
    sample = _one(x, 0)
    return RankBatch(sample, _sample_targets(y, lambda targets: check(sample, targets)), None, True)


def _sample_targets(y: object, check: Callable[[object], object]) -> object:
    """Targets of one sample: ones, or, where losses want probabilities, that of the first class. By output."""
    names = list(y) if isinstance(y, Mapping) else [""]
    for firsts in product((False, True), repeat=len(names)):
        targets = _one(y, 1)
        named = targets if isinstance(targets, dict) else {"": targets}
        for name, is_first in zip(names, firsts, strict=True):
            if is_first:
                _keep_first(named[name])
        try:
            check(targets)
        except ValueError:
            continue
        return targets
    return _one(y, 1)  # whose error is told


def _keep_first(targets: object) -> None:
    """Along axis 1."""
    if isinstance(targets, np.ndarray) and targets.ndim > 1:
        targets[:, 1:] = 0


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
