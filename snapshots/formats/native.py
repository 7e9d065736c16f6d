"""The native format: the tree in an HDF5 file, a dataset an array, and a manifest of them all. Writing needs h5py.

The root has the attributes format, version and manifest_sha256; the manifest's bytes are the dataset "manifest". The
tree's attributes are in the manifest, since one of HDF5 has at most 64 KiB. Files of version 1 have no manifest, and
all attributes on the root.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from io import FileIO
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.snapshots import manifest, tree
from singa_lite.snapshots.files.atomic import replacing
from singa_lite.snapshots.files.beside import Beside
from singa_lite.snapshots.files.disk import Disk
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.readers.hdf5 import guarded
from singa_lite.snapshots.tree import Form, Tree

#: The dataset with the manifest's bytes, and the root's attribute with their SHA-256.
_MANIFEST = "manifest"
_SHA256 = "manifest_sha256"

#: All attributes on the root of a file of version 1.
_OLD = ("format", "version", "entries", "optimizer", "step")


def save(contents: Tree, path: str | bytes | os.PathLike[str]) -> None:
    """Write the tree to `path`. One array at a time is on the host, and is hashed while it is written.

    SnapshotError for what cannot be written, or could not be read; the file at `path` is then as before.
    """
    with replacing(path) as target:
        _write_all(contents, target)
        with guarded.written(os.fsdecode(path), target) as file:
            Snapshot(file)


def _write_all(contents: Tree, target: FileIO) -> None:
    made = Manifest(dict(contents.attributes))
    with (
        Beside(made, target.fileno()) as beside,
        Disk(target) as disk,
        h5py.File(disk, "w", libver="earliest") as file,
    ):
        for name, lazy in contents.arrays.items():
            array = lazy.fetch()
            with beside.entering(name, array):
                _write(file, name, array)
            del array  # before the next one is fetched
            disk.check()
        _write(file, _MANIFEST, np.frombuffer(made.to_bytes(), np.uint8))
        file.attrs.update({"format": "singa_lite", "version": tree.VERSION, _SHA256: made.sha256})


@contextmanager
def opened(path: str | bytes | os.PathLike[str], like: Tree | None = None) -> Iterator[Snapshot]:
    """The file as a `tree.Source`; `like` is not needed.

    SnapshotError for a file that is not HDF5, is damaged, or is no snapshot; FileNotFoundError if there is none.
    """
    with guarded.opened(path) as file:
        yield Snapshot(file)


def _write(file: h5py.File, name: str, array: NDArray[Any]) -> None:
    """Make a dataset. OSError for a name that HDF5 cannot store, such as "." or one with a NUL in it."""
    try:
        stored = file.create_dataset(name, data=array).name
    except (RuntimeError, TypeError, ValueError) as error:
        raise OSError(f"entry {name!r}: {error}") from error
    if stored != f"/{name}":
        raise OSError(f"entry {name!r}: its name in HDF5 would be {stored!r}")


class Snapshot:
    """An open file as `tree.Source`, its manifest verified."""

    def __init__(self, file: guarded.File) -> None:
        self.path = file.path
        self._file = file
        self._manifest: Manifest | None = None
        tree.check_format(self)
        if self.attribute("version") > 1:
            self._manifest = self._checked_manifest()
        elif self.attribute(_SHA256) is not None:
            raise SnapshotError(f"{self.path}: wanted a snapshot of version 1 without a manifest, received one")

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """All attributes of the tree, as written; of a file of version 1 those that such a file has."""
        names = _OLD if self._manifest is None else ("format", "version")
        found = {name: self._file.attribute(name) for name in names}
        told = manifest.plain(self.path, {name: value for name, value in found.items() if value is not None})
        return told if self._manifest is None else told | self._manifest.attributes

    def attribute(self, name: str) -> Any:
        """One of them; None where there is none."""
        return self._file.attribute(name) if self._manifest is None else self.attributes.get(name)

    @cached_property
    def shapes(self) -> Mapping[str, Form]:
        """All arrays, their dtypes in this machine's byte order. SnapshotError for what does not lie in this file."""
        hidden = None if self._manifest is None else _MANIFEST
        datasets = self._file.datasets.items()
        return {path: (one.shape, one.dtype.newbyteorder("=")) for path, one in datasets if path != hidden}

    def read(self, path: str) -> NDArray[Any]:
        """The array at a path, as it was written. It is hashed at its first read, and again if the file has changed."""
        array = self._file.read(path)
        if not array.dtype.isnative:
            array = array.byteswap(inplace=True).view(array.dtype.newbyteorder("="))
        if self._manifest is not None:
            self._manifest.check(self.path, path, array, self._file.state())
        return array

    def _checked_manifest(self) -> Manifest:
        """The manifest. SnapshotError unless it is whole and has just the names that the file has."""
        datasets = self._file.datasets
        if _MANIFEST not in datasets:
            raise SnapshotError(f"{self.path}: wanted an entry {_MANIFEST!r}, received none of that name")
        stored = datasets[_MANIFEST]
        if stored.dtype != np.uint8:
            raise SnapshotError(f"{self.path}: wanted a manifest of bytes, received {stored.shape} {stored.dtype}")
        text, digest = self._file.read(_MANIFEST).tobytes(), self._file.attribute(_SHA256)
        found = manifest.read(self.path, text, digest, self._file.size)
        for path in found.entries:
            if path not in datasets:
                raise SnapshotError(f"{self.path}: wanted an entry {path!r}, received none of that name")
        for path in datasets:
            if path not in found.entries and path != _MANIFEST:
                raise SnapshotError(f"{self.path}: received an entry {path!r}, for which there is no place")
        return found
