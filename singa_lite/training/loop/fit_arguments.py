"""Checks of `fit`'s arguments that are neither data nor callbacks."""

from __future__ import annotations

import numpy as np

from singa_lite.common.arrays import kind
from singa_lite.common.checks import integer
from singa_lite.data import Bucketed, Paired
from singa_lite.data.loading.batch_sources import gives_batches
from singa_lite.data.loading.data_set import DataSet


def check_epochs(data: DataSet, validation: DataSet | None, epochs: int, shuffle: bool) -> None:
    """ValueError where the data do not have so many epochs, or where steps_per_epoch would leave some out for ever."""
    if data.steps is not None and data.ordered and not shuffle:
        raise ValueError(
            "fit steps_per_epoch: wanted shuffle=True, so that each epoch takes other batches of the data, received "
            "shuffle=False"
        )
    for word, each in (("steps_per_epoch", data), ("validation_steps", validation)):
        if each is not None and each.once and each.steps is None and epochs > 1:
            raise ValueError(
                f"fit {word}: wanted how many batches of the iterator an epoch takes, as it can be gone through but "
                f"once, received none for {epochs} epochs"
            )


def checked_verbose(where: str, given: object) -> bool:
    """Whether progress is shown: for True, 1, 2 and "auto", not for False and 0. ValueError for others."""
    if isinstance(given, bool | np.bool_) or (type(given) is int and given in (0, 1, 2)):
        return bool(given)
    if not isinstance(given, str) or given != "auto":
        raise ValueError(f"{where}: wanted True or False, or Keras's 0, 1, 2 or 'auto', received {given!r:.100}")
    return True


def checked_initial_epoch(given: int, epochs: int, resume: object) -> int:
    """How many epochs count as done. ValueError for more than `epochs`, and for any beside `resume`."""
    count = integer("fit initial_epoch", given, 0)
    if count > integer("fit epochs", epochs, 0):
        raise ValueError(
            f"fit initial_epoch: wanted at most epochs={epochs}, which counts those before, received {count}"
        )
    if count and resume is not None:
        raise ValueError(f"fit initial_epoch: wanted none beside resume, whose checkpoint says it, received {count}")
    return count


def pair(where: str, given: object) -> tuple[object, object]:
    """(samples, targets); None where the data have theirs.

    TypeError for what is no tuple or list, ValueError for one of another length.
    """
    if isinstance(given, Bucketed | Paired) or gives_batches(given):
        return given, None
    if not isinstance(given, tuple | list):
        raise TypeError(f"{where}: wanted (x, y), received {kind(given)}")
    if len(given) != 2:
        raise ValueError(f"{where}: wanted (x, y), received {len(given)} parts")
    return given[0], given[1]
