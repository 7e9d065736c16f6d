"""SINGA's snapshots that are NumPy arrays by name: pickles until 3.0, zip archives since 3.1. They are only read.

A pickle, `net.save(f, use_pickle=True)` or the model zoo's, has since 1.1.1 the number of a version too: see
`readers.numpy_pickle`. A zip, `Model.save_states(path)`, has two deflated members:

tensor_dict.npz    a NumPy archive, its arrays stored, by names with dots ("conv1.W", "block.bn1.running_mean")
states_attr.json   {name: {"state_type": 0 of the model or 1 the user's own, "shape": [...], "dtype": number}}

Arrays of the user's own are no part of a net. They are left out, and named in `left_out`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.formats.singa.names import named
from singa_lite.snapshots.formats.singa.records import VERSION
from singa_lite.snapshots.readers import numpy_pickle, raw, zip_archive
from singa_lite.snapshots.readers.numpy_pickle import PickledArray
from singa_lite.snapshots.readers.raw import ByteArray, Json, RawFile
from singa_lite.snapshots.tree import LazyArray, Tree

_ARRAYS, _ATTRIBUTES = "tensor_dict.npz", "states_attr.json"

#: {number in the attributes: dtype}, as in SINGA's enum.
_DTYPES = {0: "float32", 1: "float16", 2: "int32", 4: "float64"}

_MODEL, _OWN = 0, 1


class _Inner(RawFile):
    """The archive in the archive, unpacked in memory. Reading gives views, which take no further memory.

    Its allowance is that of the file on disk, not of the unpacked bytes.
    """

    def __init__(self, outer: RawFile, data: ByteArray) -> None:
        self.path, self.size = f"{outer.path}: {_ARRAYS}", data.size
        self.allowance, self._data = outer.allowance, data

    def read(self, what: str, offset: int, count: int) -> ByteArray:
        """As of a file."""
        if offset < 0 or count < 0 or offset + count > self.size:
            end = f"wanted bytes {offset} to {offset + count}, received {self.size}"
            raise SnapshotError(f"{self.path}: {what}: {end}")
        return self._data[offset : offset + count]


@contextmanager
def opened(path: str | os.PathLike[str], wanted: Tree | None) -> Iterator[Tree]:
    """A .pickle, .pkl or .zip. wanted: the net's tree, see `names.named`. While it is open, its arrays are in memory.

    FileNotFoundError if there is none; SnapshotError for a pickle of anything but arrays of numbers by name, or one
    that calls or names what such a pickle does not need; for a zip of other members, one that unpacks to more than
    `raw` allows, and attributes that do not fit the arrays; and for a damaged one.
    """
    with raw.reading(path) as file:
        if file.path.lower().endswith(".zip"):
            arrays, left_out = _zipped_arrays(file)
        else:
            arrays, left_out = _pickled_arrays(file), []
        found = named(file.path, {name: lazy for name, lazy in arrays.items() if name not in left_out}, wanted)
        found.left_out = left_out
        yield found


def _zipped_arrays(file: RawFile) -> tuple[dict[str, LazyArray], list[str]]:
    """The arrays of a .zip by name, and the names of those that are left out."""
    members = zip_archive.members(file)
    if members.keys() != {_ARRAYS, _ATTRIBUTES}:
        raise SnapshotError(f"{file.path}: wanted {_ARRAYS} and {_ATTRIBUTES}, received {list(members)[:8]}")
    attributes = raw.load_json(file, _ATTRIBUTES, zip_archive.read(file, members[_ATTRIBUTES]))
    arrays = _npz_arrays(_Inner(file, zip_archive.read(file, members[_ARRAYS])))
    return arrays, _checked(file.path, arrays, attributes)


def _npz_arrays(inner: _Inner) -> dict[str, LazyArray]:
    """The arrays of a .npz by name."""
    found: dict[str, LazyArray] = {}
    for name, member in zip_archive.members(inner).items():
        if not name.endswith(".npy") or not member.is_stored:
            raise SnapshotError(f"{inner.path}: member {name!r}: wanted a stored array")
        array = zip_archive.npy_array(inner, member)
        found[name.removesuffix(".npy")] = LazyArray(array.shape, array.dtype.newbyteorder("="), array.read)
    return found


def _checked(where: str, arrays: Mapping[str, LazyArray], attributes: Mapping[str, Json]) -> list[str]:
    """The names of the user's own arrays. SnapshotError unless there are attributes for each array, and they fit."""
    differing = sorted(arrays.keys() ^ attributes.keys())
    if differing:
        raise SnapshotError(f"{where}: wanted attributes for each array, received names that differ: {differing[:8]}")
    left_out: list[str] = []
    for name, lazy in arrays.items():
        given = attributes[name]
        wanted = {"shape": list(lazy.shape), "dtype": lazy.dtype.name}
        described = _described(given) if isinstance(given, dict) else None
        if described is None or described[1] != wanted:
            raise SnapshotError(f"{where}: entry {name!r}: wanted the attributes {wanted}, received {given!r}"[:600])
        if described[0] == _OWN:
            left_out.append(name)
    return left_out


def _described(given: Mapping[str, Json]) -> tuple[int, dict[str, object]] | None:
    """(state_type, shape and dtype) in the attributes of an array. None for values of other types."""
    kind, shape, dtype = (given.get(key) for key in ("state_type", "shape", "dtype"))
    if type(kind) is not int or kind not in (_MODEL, _OWN) or type(dtype) is not int or not isinstance(shape, list):
        return None
    return kind, {"shape": shape, "dtype": _DTYPES.get(dtype)}


def _pickled_arrays(file: RawFile) -> dict[str, LazyArray]:
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
