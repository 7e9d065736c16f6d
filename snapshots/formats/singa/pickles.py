"""Reads SINGA's pickles, `net.save(f, use_pickle=True)` of 1.0 to 3.0 and the model zoo's. Each is a dictionary of
NumPy arrays by name, and since 1.1.1 the number of a version. They are only read: see
`readers.numpy_pickle`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.formats.singa.names import named
from singa_lite.snapshots.formats.singa.records import VERSION
from singa_lite.snapshots.readers import numpy_pickle, raw
from singa_lite.snapshots.readers.numpy_pickle import PickledArray
from singa_lite.snapshots.readers.raw import RawFile
from singa_lite.snapshots.tree import LazyArray, Tree


@contextmanager
def opened(path: str | os.PathLike[str], wanted: Tree | None) -> Iterator[Tree]:
    """A .pickle or .pkl. wanted: the net's tree, see `names.named`.

    FileNotFoundError if there is none; SnapshotError for a pickle of anything but arrays of numbers by name, for one
    that calls or names what such a pickle does not need, and for a damaged one.
    """
    with raw.reading(path) as file:
        yield named(file.path, _arrays(file), wanted)


def _arrays(file: RawFile) -> dict[str, LazyArray]:
    found: dict[str, LazyArray] = {}
    seen: set[int] = set()
    for name, value in numpy_pickle.read(file).items():
        where = f"{file.path}: entry {name!r}"
        if name == VERSION and type(value) is int:
            continue
        if not isinstance(value, PickledArray) or value.data is None:
            raise SnapshotError(f"{where}: wanted an array, received another value")
        if value.data and id(value.data) in seen:  # else a small file could hold many large arrays
            raise SnapshotError(f"{where}: wanted numbers of its own, received another's")
        seen.add(id(value.data))
        raw.check_shape(where, value.shape, value.dtype)
        found[name] = LazyArray(value.shape, value.dtype.newbyteorder("="), partial(value.read, where))
    return found
