"""Weights as Keras 3 has them in `.weights.h5`: what is saved here loads there, and the other way round.

A layer's arrays are the datasets "layers/<class>[_k]/vars/0", "1" and so on; <class> is Keras's, in snake case, k
counts the layers of a class in Keras's order; the attribute `name` of "vars" is the layer's name. Written as Keras does
(keras/src/saving/saving_lib.py), with one group more, "singa_lite", which Keras never looks at: the manifest, by which
a file of ours is verified.

Layouts are converted, values are not; the net in Keras must do the same as ours on samples with channels last. Its
order of layers is that of a Functional with the same layers: where a branch has an activation inside another layer in
Keras, layers of one class may be numbered otherwise, and names have to say which is which. BatchNormalization's epsilon
is 1e-5 here and 1e-3 there unless given, its momentum is 1 minus Keras's; its variance is stored as it is, though in
training Keras follows the biased one and we follow the unbiased one. Neither the optimizer's state nor random state is
in such a file: it is not written, Keras's is not read, and a dropout's stays as the net has it. Writing needs h5py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import prod
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.snapshots import foreign, manifest
from singa_lite.snapshots.files.atomic import replacing
from singa_lite.snapshots.hdf5 import guarded
from singa_lite.snapshots.hdf5.disk import Disk
from singa_lite.snapshots.keras.groups import Found, Group, Variable, alone, matched, told
from singa_lite.snapshots.keras.net import is_chain, notes
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.tree import Form, Tree

#: Our own group in the file, with the manifest's bytes and, as an attribute, their SHA-256.
_OURS = "singa_lite"
_MANIFEST = f"{_OURS}/manifest"

#: Bytes of a converted array that are made at once.
_PIECE = 4 << 20

#: Bytes of a manifest that are read for each array, and for all together.
_MANIFEST_EACH, _MANIFEST_ALL = 4096, 1 << 20

#: Attributes of the tree that say what a net is.
_KEPT = ("format", "version", "layers", "wiring")


def save(contents: Tree, path: str | bytes | os.PathLike[str]) -> None:
    """Write the tree's parameters and running statistics, as Keras names and lays them out.

    SnapshotError for a layer with arrays that Keras lacks, and for what cannot be written; the file at `path` is then
    as before.
    """
    where = os.fsdecode(path)
    net = notes(where, contents.attributes)
    groups = told(where, net, {path: (lazy.shape, lazy.dtype) for path, lazy in contents.arrays.items()})
    made = Manifest({name: contents.attributes[name] for name in _KEPT if name in contents.attributes})
    with (
        replacing(path) as target,
        ThreadPoolExecutor(1) as hasher,
        Disk(target) as disk,
        h5py.File(disk, "w", libver="earliest") as file,
    ):
        _make_group(file, "vars", "sequential" if is_chain(net) else "functional")
        for group in groups:
            _make_group(file, f"{group.path}/vars", group.name)
            for number, variable in enumerate(group.variables):
                array = contents.arrays[variable.path].fetch()
                if array.dtype.name == "bfloat16":
                    array = array.view("V2")
                hashed = hasher.submit(made.enter, variable.path, array)
                _write(file, f"{group.path}/vars/{number}", variable, array)
                hashed.result()
                del array, hashed  # before the next one is fetched
                disk.check()
        file.create_dataset(_MANIFEST, data=np.frombuffer(made.to_bytes(), np.uint8))
        file[_OURS].attrs["sha256"] = made.sha256


def _make_group(file: h5py.File, path: str, name: str) -> None:
    try:
        name.encode()
        file.create_group(path).attrs["name"] = name
    except (RuntimeError, TypeError, ValueError) as error:
        raise OSError(f"layer {name!r}: its name cannot be written: {error}") from error


def _write(file: h5py.File, place: str, variable: Variable, array: NDArray[Any]) -> None:
    """Make a dataset of an array, converted a piece at a time."""
    view, rows = variable.layout.view(array), variable.layout.rows()
    stored = file.create_dataset(place, view.shape, view.dtype)
    if view.dtype.kind == "V":  # bfloat16, which HDF5 has not: Keras stores it as two bytes without a meaning
        stored.attrs["dtype"] = "bfloat16"
    count = max(1, _PIECE // max(1, prod(view.shape[1:]) * view.itemsize))
    for start in range(0, len(view), count):
        piece = slice(start, start + count)
        stored[piece] = view[piece] if rows is None else view[rows[piece]]


@contextmanager
def opened(path: str | bytes | os.PathLike[str], like: Tree | None = None) -> Iterator[Weights]:
    """The file as a `tree.Source`.

    A file of ours has our names, and is verified. One of Keras's is matched to `like`: by the layers' names if it has
    them all, else by class and number. Without `like` its layers keep their names. Narrower floats become those of
    `like`, bfloat16 without it float32. SnapshotError for what does not fit; FileNotFoundError if there is none.
    """
    with guarded.opened(path) as file:
        yield Weights(file, like)


class Weights:
    """An open file of weights as `tree.Source`."""

    def __init__(self, file: guarded.File, like: Tree | None) -> None:
        self.path = file.path
        self._file = file
        self._like = {} if like is None else like.arrays
        self._manifest = _manifest(file) if _OURS in file.groups else None
        self._verified: dict[str, guarded.State] = {}
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

    @property
    def shapes(self) -> dict[str, Form]:
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
        state = self._file.state()
        if self._manifest is not None and self._verified.get(path) != state:
            self._manifest.check(self.path, path, array)
            self._verified[path] = state
        if array.dtype.kind == "V":  # bfloat16: the upper half of a float32
            array = (array.view("<u2").astype("<u4") << 16).view(np.float32)
        return array.astype(self._dtype(path), copy=False)


def _found(file: guarded.File) -> dict[str, Found]:
    """The groups of the file that hold arrays, by path. SnapshotError for arrays in other places.

    Keras's optimizer and what else it keeps beside the layers (names that begin with "_") are left out.
    """
    numbered: dict[str, list[int]] = {}
    for path in file.datasets:
        if path.startswith(("optimizer/", "_")) or path == _MANIFEST:
            continue
        match = re.fullmatch(r"(.+)/vars/(0|[1-9]\d{0,3})", path)
        if match is None:
            raise SnapshotError(f"{file.path}: entry {path!r}: wanted layers as Keras 3 has them, '.../vars/0'")
        numbered.setdefault(match[1], []).append(int(match[2]))
    return {group: _group(file, group, sorted(numbers)) for group, numbers in numbered.items()}


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
    if _MANIFEST not in file.datasets:
        raise SnapshotError(f"{file.path}: wanted an entry {_MANIFEST!r}, received none of that name")
    stored = file.datasets[_MANIFEST]
    most = _MANIFEST_ALL + _MANIFEST_EACH * len(file.datasets)
    if stored.dtype != np.uint8 or stored.nbytes > most:
        raise SnapshotError(f"{file.path}: wanted a manifest of at most {most} bytes, received {stored}")
    return manifest.read(file.path, file.read(_MANIFEST).tobytes(), file.attribute("sha256", _OURS))
