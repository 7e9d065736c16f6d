"""Checks of target values at each step, once targets of their form were found to fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from singa_lite.common.array_types import Array

#: Whether the values of an array make sense. Equal ones ask the same.
ValuesCheck = Callable[[Array], bool]

_UNSIGNED = {np.dtype(f"i{nbytes}"): np.dtype(f"u{nbytes}") for nbytes in (1, 2, 4, 8)}


def any_values(values: Array) -> bool:
    """Of targets that fit by shape and dtype alone."""
    return True


@dataclass(frozen=True, slots=True)
class ClassIds:
    """That all are from 0 to below `classes`, or `ignored`."""

    classes: int
    ignored: int | None = None

    def __call__(self, values: Array) -> bool:
        if not values.size:
            return True
        unsigned = _UNSIGNED.get(values.dtype)
        if self.ignored is None and unsigned is not None and self.classes <= 1 << (8 * values.itemsize - 1):
            values = values.view(unsigned)  # in which a negative id is above all classes: one pass instead of two
            return bool(np.maximum.reduce(values, axis=None) < self.classes)
        good = (values >= 0) & (values < self.classes)
        return bool((good if self.ignored is None else good | (values == self.ignored)).all())
