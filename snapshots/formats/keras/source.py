"""A file of weights in Keras's layout, ours or Keras's own, as a tree."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.snapshots import foreign, manifest
from singa_lite.snapshots.formats.keras.groups import Found, Group, Variable, alone, matched, told
from singa_lite.snapshots.formats.keras.net import notes
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.hdf5 import guarded
from singa_lite.snapshots.tree import Lazy, Tree

#: Our own group in the file, with the manifest's bytes and, as an attribute, their SHA-256.
OURS = "singa_lite"
MANIFEST = f"{OURS}/manifest"


def tree_of(file: guarded.File, like: Tree | None) -> Tree:
    """What an open file of weights holds, and the random state of `like`.

    SnapshotError for arrays for which there is no place, and for a damaged manifest.
    """
    known = manifest.in_hdf5(file, MANIFEST, "sha256", OURS) if OURS in file.groups else None
    arrays: dict[str, Lazy] = {}
    for group in _groups(file, known, like):
        for number, variable in enumerate(group.variables):
            place = f"{group.path}/vars/{number}"
            dtype = _dtype(file.datasets[place].dtype, variable.path, like)
            fetch = partial(_read, file, known, place, variable, dtype)
            arrays[variable.path] = Lazy(variable.layout.ours, dtype, fetch)
    arrays |= foreign.kept(arrays, like)
    if known is not None:
        return Tree(arrays, known.attributes | {"entries": len(arrays)}, file.path)
    found = foreign.tree_of(file.path, arrays, like)
    if like is not None:
        found.attributes["wiring"] = like.attributes["wiring"]
    return found


def _groups(file: guarded.File, known: Manifest | None, like: Tree | None) -> list[Group]:
    """The groups of the file that are read. SnapshotError for arrays in it for which there is no place."""
    found = _found(file)
    if known is not None:
        forms = {path: (entry.shape, np.dtype(np.float32)) for path, entry in known.entries.items()}
        written = told(file.path, notes(file.path, known.attributes), forms)
        _check_written(file.path, written, known)
        return matched(file.path, [written], found)
    if like is None:
        return alone(file.path, found, file.groups)
    net = notes(file.path, like.attributes)
    return matched(file.path, [told(file.path, net, like.shapes, depthwise) for depthwise in (True, False)], found)


def _dtype(stored: np.dtype[Any], path: str, like: Tree | None) -> np.dtype[Any]:
    """Of the array as it is read: that of `like` if it holds all that the file's does, else the file's."""
    native = np.dtype(np.float32) if stored.kind == "V" else stored.newbyteorder("=")
    wanted = native if like is None or path not in like.arrays else like.arrays[path].dtype
    return wanted if np.can_cast(native, wanted, "safe") else native


def _read(
    file: guarded.File, known: Manifest | None, place: str, variable: Variable, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """An array as the tree has it."""
    array = variable.layout.to_ours(file.read(place))
    if known is not None:
        known.check(file.path, variable.path, array, file.state())
    if array.dtype.kind == "V":  # bfloat16: the upper half of a float32
        array = (array.view("<u2").astype("<u4") << 16).view(np.float32)
    return array.astype(dtype, copy=False)


def _found(file: guarded.File) -> dict[str, Found]:
    """The groups of the file that hold arrays, by path. SnapshotError for arrays in other places.

    Keras's optimizer and what else it keeps beside the layers (names that begin with "_") are left out.
    """
    numbered: dict[str, list[int]] = {}
    for path in file.datasets:
        if path.startswith(("optimizer/", "_")) or path == MANIFEST:
            continue
        match = re.fullmatch(r"(.+)/vars/(0|[1-9]\d{0,3})", path)
        if match is None:
            raise SnapshotError(f"{file.path}: entry {path!r}: wanted layers as Keras 3 has them, '.../vars/0'")
        numbered.setdefault(match[1], []).append(int(match[2]))
    found: dict[str, Found] = {}
    names = 0
    for group, numbers in numbered.items():
        found[group] = _group(file, group, sorted(numbers))
        names += sys.getsizeof(found[group].name)  # all may be one long text of the file
        raw.allow(file.path, "the names of its layers", names, file.size)
    return found


def _group(file: guarded.File, path: str, numbers: list[int]) -> Found:
    """The group at this path, whose arrays have these numbers; it may be without a name."""
    if numbers != list(range(len(numbers))):
        raise SnapshotError(f"{file.path}: group {path!r}: wanted arrays numbered from 0, received {numbers}")
    arrays = [f"{path}/vars/{number}" for number in numbers]
    for array in arrays:
        if file.datasets[array].dtype.kind == "V" and file.attribute("dtype", array) != "bfloat16":
            raise SnapshotError(f"{file.path}: entry {array!r}: wanted numbers")
    name = file.attribute("name", f"{path}/vars")
    shapes = tuple(file.datasets[array].shape for array in arrays)
    return Found(name if isinstance(name, str) else path.rpartition("/")[2], shapes)


def _check_written(where: str, groups: list[Group], made: Manifest) -> None:
    """SnapshotError unless the layers have a place for each array of the manifest."""
    placed = {variable.path for group in groups for variable in group.variables}
    for path in made.entries:
        if path not in placed:
            raise SnapshotError(f"{where}: received an entry {path!r}, for which there is no place")
