"""The native format: the tree in an HDF5 file, one dataset for each array, and a manifest. Writing needs h5py.

The root has the attributes format, version and manifest_sha256; the manifest's bytes are the dataset "manifest". The
tree's attributes are in the manifest, since an attribute of HDF5 has at most 64 KiB. Files of version 1 have no
manifest, and have all attributes on the root.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import FileIO

import h5py
import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.atomic import replacing
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import hdf5_writer, manifest, tree
from singa_lite.snapshots.manifest import Attribute, Manifest
from singa_lite.snapshots.readers.hdf5 import guarded
from singa_lite.snapshots.tree import LazyArray, Tree

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
            tree_of(file)


def _write_all(contents: Tree, target: FileIO) -> None:
    made = Manifest(dict(contents.attributes))
    with hdf5_writer.writing(target, made) as writer:
        for name, lazy in contents.arrays.items():
            writer.add(name, lazy, partial(_write, writer.file, name))
        _write(writer.file, _MANIFEST, np.frombuffer(made.to_bytes(), np.uint8))
        writer.file.attrs.update({"format": "singa_lite", "version": tree.VERSION, _SHA256: made.sha256})


def _write(file: h5py.File, name: str, array: Array) -> None:
    """Make a dataset. OSError for a name that HDF5 cannot store, such as "." or one with a NUL in it."""
    try:
        stored = file.create_dataset(name, data=array).name
    except (RuntimeError, TypeError, ValueError) as error:
        raise OSError(f"entry {name!r}: {error}") from error
    if stored != f"/{name}":
        raise OSError(f"entry {name!r}: its name in HDF5 would be {stored!r}")


@contextmanager
def opened(path: str | bytes | os.PathLike[str], wanted: Tree | None = None) -> Iterator[Tree]:
    """The file as a tree. wanted: not used, as the names in the file are those of the tree.

    SnapshotError for a file that is not HDF5, is damaged, or is no snapshot; FileNotFoundError if there is none.
    """
    with guarded.opened(path) as file:
        yield tree_of(file)


def tree_of(file: guarded.File) -> Tree:
    """The tree in an open file, its manifest verified. SnapshotError for what is no snapshot, and for a damaged one."""
    tree.check_kind(file.path, file.attribute("format"))
    version = tree.checked_version(file.path, file.attribute("version"))
    known = _checked_manifest(file) if version > 1 else None
    if known is None and file.attribute(_SHA256) is not None:
        raise SnapshotError(f"{file.path}: wanted a snapshot of version 1 without a manifest, received one")
    arrays = {
        path: LazyArray(one.shape, one.dtype.newbyteorder("="), partial(_read, file, path, known))
        for path, one in file.datasets.items()
        if known is None or path != _MANIFEST
    }
    return Tree(arrays, _attributes(file, known), file.path)


def _attributes(file: guarded.File, known: Manifest | None) -> dict[str, Attribute]:
    """All attributes of the tree; of a file of version 1 those that such a file has."""
    names = _OLD if known is None else ("format", "version")
    found = {name: file.attribute(name) for name in names}
    attributes = manifest.plain(file.path, {name: value for name, value in found.items() if value is not None})
    return attributes if known is None else attributes | known.attributes


def _read(file: guarded.File, path: str, known: Manifest | None) -> Array:
    """The array at a path, as it was written. It is hashed at the first read, and again once the file was changed."""
    array = file.read(path)
    if not array.dtype.isnative:
        array = array.byteswap(inplace=True).view(array.dtype.newbyteorder("="))
    if known is not None:
        known.check(file.path, path, array, file.state())
    return array


def _checked_manifest(file: guarded.File) -> Manifest:
    """The manifest. SnapshotError unless it is whole and names the datasets of the file and no others."""
    found = manifest.in_hdf5(file, _MANIFEST, _SHA256)
    found.check_names(file.path, file.datasets.keys() - {_MANIFEST})
    return found
