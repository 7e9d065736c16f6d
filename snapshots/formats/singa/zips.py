"""SINGA's snapshots since 3.1, `Model.save_states(path)`: a zip archive of two deflated members. They are only read.

tensor_dict.npz    a NumPy archive, its arrays stored, by names with dots ("conv1.W", "block.bn1.running_mean")
states_attr.json   {name: {"state_type": 0 of the model or 1 the user's own, "shape": [...], "dtype": number}}

Arrays of the user's own are no part of a net. They are left out, and named in `left_out`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.formats.singa.names import named
from singa_lite.snapshots.readers import raw, zip_archive
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
    """A .zip. wanted: the net's tree, see `names.named`. While it is open, all arrays are in memory.

    FileNotFoundError if there is none; SnapshotError for an archive of other members, one that unpacks to more than
    `raw` allows, and attributes that do not fit the arrays.
    """
    with raw.reading(path) as file:
        members = zip_archive.members(file)
        if members.keys() != {_ARRAYS, _ATTRIBUTES}:
            raise SnapshotError(f"{file.path}: wanted {_ARRAYS} and {_ATTRIBUTES}, received {list(members)[:8]}")
        text = zip_archive.read(file, members[_ATTRIBUTES])
        attributes = raw.load_json(file, _ATTRIBUTES, text)
        arrays = _arrays(_Inner(file, zip_archive.read(file, members[_ARRAYS])))
        left_out = _checked(file.path, arrays, attributes)
        found = named(file.path, {name: lazy for name, lazy in arrays.items() if name not in left_out}, wanted)
        found.left_out = left_out
        yield found


def _arrays(inner: _Inner) -> dict[str, LazyArray]:
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
