"""A file of weights in Keras's layout, ours or Keras's own, as the tree's source."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.snapshots import foreign, manifest
from singa_lite.snapshots.formats.keras.groups import Found, Group, alone, matched, told
from singa_lite.snapshots.formats.keras.net import notes
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.hdf5 import guarded
from singa_lite.snapshots.tree import Form, Tree

#: Our own group in the file, with the manifest's bytes and, as an attribute, their SHA-256.
OURS = "singa_lite"
MANIFEST = f"{OURS}/manifest"


class Weights:
    """An open file of weights as `tree.Source`."""

    def __init__(self, file: guarded.File, like: Tree | None) -> None:
        self.path = file.path
        self._file = file
        self._like = {} if like is None else like.arrays
        self._manifest = _manifest(file) if OURS in file.groups else None
        groups = self._groups(like)
        self._places = {
            variable.path: (f"{group.path}/vars/{number}", variable)
            for group in groups
            for number, variable in enumerate(group.variables)
        }
        self._kept = foreign.kept(self._places, like)
        self.attributes: Mapping[str, Any] = self._attributes(like)

    def _groups(self, like: Tree | None) -> list[Group]:
        """The groups of the file that are read. SnapshotError for arrays in it for which there is no place."""
        found = _found(self._file)
        if self._manifest is not None:
            forms = {path: (entry.shape, np.dtype(np.float32)) for path, entry in self._manifest.entries.items()}
            written = told(self.path, notes(self.path, self._manifest.attributes), forms)
            _check_written(self.path, written, self._manifest)
            return matched(self.path, [written], found)
        if like is None:
            return alone(self.path, found, self._file.groups)
        forms = {path: (lazy.shape, lazy.dtype) for path, lazy in like.arrays.items()}
        net = notes(self.path, like.attributes)
        return matched(self.path, [told(self.path, net, forms, depthwise) for depthwise in (True, False)], found)

    def _attributes(self, like: Tree | None) -> dict[str, Any]:
        if self._manifest is None:
            wiring = {} if like is None else {"wiring": like.attributes["wiring"]}
            return foreign.attributes(len(self.shapes), like) | wiring
        return {**self._manifest.attributes, "entries": len(self.shapes)}

    def attribute(self, name: str) -> Any:
        """One of them; None where there is none."""
        return self.attributes.get(name)

    @cached_property
    def shapes(self) -> Mapping[str, Form]:
        """All arrays, and the random state of `like`."""
        forms = {path: (variable.layout.ours, self._dtype(path)) for path, (_, variable) in self._places.items()}
        return forms | {path: (lazy.shape, lazy.dtype) for path, lazy in self._kept.items()}

    def _dtype(self, path: str) -> np.dtype[Any]:
        """Of the array as it is read: that of `like` if it holds all that the file's does, else the file's."""
        place = self._places[path][0]
        stored = self._file.datasets[place].dtype.newbyteorder("=")
        if stored.kind == "V":
            stored = np.dtype(np.float32)
        wanted = self._like[path].dtype if path in self._like else stored
        return wanted if np.can_cast(stored, wanted, "safe") else stored

    def read(self, path: str) -> NDArray[Any]:
        """The array at a path of the tree, as it lies there."""
        if path in self._kept:
            return self._kept[path].fetch()
        place, variable = self._places[path]
        array = variable.layout.to_ours(self._file.read(place))
        if self._manifest is not None:
            self._manifest.check(self.path, path, array, self._file.state())
        if array.dtype.kind == "V":  # bfloat16: the upper half of a float32
            array = (array.view("<u2").astype("<u4") << 16).view(np.float32)
        return array.astype(self._dtype(path), copy=False)


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


def _manifest(file: guarded.File) -> Manifest:
    """The manifest of a file of ours. SnapshotError unless it is whole."""
    if MANIFEST not in file.datasets:
        raise SnapshotError(f"{file.path}: wanted an entry {MANIFEST!r}, received none of that name")
    stored = file.datasets[MANIFEST]
    if stored.dtype != np.uint8:
        raise SnapshotError(f"{file.path}: wanted a manifest of bytes, received {stored.shape} {stored.dtype}")
    return manifest.read(file.path, file.read(MANIFEST).tobytes(), file.attribute("sha256", OURS), file.size)
