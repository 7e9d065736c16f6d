"""A history as arrays by path: one for each entry, or for each output where an entry's values are dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.tree import Tree
from singa_lite.training.loop.progress import History

#: {kind of dtype: the dtype that is written}.
_KEPT_AS = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.bool_}


def arrays(history: History, at: str) -> dict[str, Array]:
    """{`at` + "loss": float64 (epochs,), `at` + "metric/<output>": ...}. SnapshotError for what is no numbers."""
    found: dict[str, Array] = {}
    for name, values in history.history.items():
        if "/" in name:
            raise SnapshotError(f"checkpoint: wanted names without '/' in the history, received {name!r}")
        if values and all(isinstance(value, Mapping) for value in values):
            if any(value.keys() != values[0].keys() for value in values):
                raise SnapshotError(f"checkpoint: wanted the same names in each dict of the history's {name!r}")
            for key in values[0]:
                found[f"{at}{name}/{key}"] = _numbers(f"{name}/{key}", [value[key] for value in values])
        else:
            found[f"{at}{name}"] = _numbers(name, values)
    return found


def _numbers(name: str, values: Sequence[object]) -> Array:
    """The values as bool, int64 or float64."""
    try:
        array = np.asarray(values)
        if array.ndim in (1, 3) and array.dtype.kind in _KEPT_AS:
            return array.astype(_KEPT_AS[array.dtype.kind])
    except ValueError:  # lists of unequal lengths
        pass
    raise SnapshotError(f"checkpoint: wanted numbers in the history's {name!r}, received {values[-1:]}")


def read(snapshot: Tree, at: str, order: Sequence[str]) -> History:
    """The history of a file, its entries in this order. SnapshotError for arrays that are none of ours."""
    made = History()
    for path, (shape, dtype) in snapshot.specs.items():
        if not path.startswith(at):
            continue
        if len(shape) not in (1, 3) or dtype not in _KEPT_AS.values():
            raise SnapshotError(f"{snapshot.path}: entry {path!r}: wanted numbers an epoch, received {shape} {dtype}")
        values = snapshot.read(path)
        _enter(made, path.removeprefix(at), values.tolist() if values.ndim == 1 else list(values))
    made.history = {name: made.history.pop(name) for name in order if name in made.history} | made.history
    return made


def _enter(made: History, path: str, values: list[object]) -> None:
    name, _, key = path.partition("/")
    if not key:
        made.history[name] = values
        return
    entries = made.history.setdefault(name, [{} for _ in values])
    for entry, value in zip(entries, values, strict=False):
        entry[key] = value
