"""The manifest of a snapshot: every array's shape, dtype and SHA-256, the attributes, and a SHA-256 of it all."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import isfinite
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import SnapshotError, SnapshotVersionError
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.hdf5 import guarded
from singa_lite.snapshots.readers.raw import FileState, Unchecked
from singa_lite.tensor import Shape

#: The version of the manifest that is written; a reader refuses a higher one.
VERSION = 1

#: The value of an attribute of a tree.
Attribute = str | int | float | bool | None


class ManifestEntry(NamedTuple):
    """An array: shape, name of its dtype, and SHA-256 of its bytes in C order, little-endian, in hexadecimal digits."""

    shape: Shape
    dtype: str
    sha256: str


@dataclass
class Manifest:
    """Digests of all arrays: a writer enters each and stores the manifest last, a reader checks each against it."""

    attributes: dict[str, Attribute] = field(default_factory=dict)
    entries: dict[str, ManifestEntry] = field(default_factory=dict)
    _checked: dict[str, FileState] = field(default_factory=dict, compare=False, repr=False)

    def enter(self, path: str, array: Array) -> None:
        """Add an array that is being written."""
        self.entries[path] = ManifestEntry(array.shape, array.dtype.name, digest(array))

    def check_names(self, where: str, found: Collection[str]) -> None:
        """SnapshotError unless these are the names of its entries. where: the file."""
        differing = sorted(self.entries.keys() ^ set(found))
        if differing:
            raise SnapshotError(f"{where}: wanted the manifest's entries, received names that differ in {differing}")

    def check(self, where: str, path: str, array: Array, state: FileState | None = None) -> None:
        """SnapshotError that names the array unless it is, byte for byte, the one that was written. where: the file.

        state: of the file; an array that was checked in this state is not hashed again.
        """
        if state is not None and self._checked.get(path) == state:
            return
        entry = self.entries.get(path)
        if entry is None:
            raise SnapshotError(f"{where}: entry {path!r}: wanted one of the manifest's")
        found = array.shape, array.dtype.name
        if found != entry[:2]:
            raise SnapshotError(f"{where}: entry {path!r}: wanted {entry.shape} {entry.dtype}, received {found}")
        sha = digest(array)
        if sha != entry.sha256:
            raise SnapshotError(
                f"{where}: entry {path!r} is damaged: wanted bytes with SHA-256 {entry.sha256}, received {sha}"
            )
        if state is not None:
            self._checked[path] = state

    def to_bytes(self) -> bytes:
        """The manifest as JSON; equal contents give equal bytes."""
        entries = {path: [list(e.shape), e.dtype, e.sha256] for path, e in self.entries.items()}
        contents = {"manifest": VERSION, "attributes": self.attributes, "entries": entries}
        return json.dumps(contents, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @property
    def sha256(self) -> str:
        """The SHA-256 of `to_bytes`. It covers the digest of every array."""
        return sha256(self.to_bytes()).hexdigest()


def read(where: str, data: bytes, wanted: object, size: int) -> Manifest:
    """The manifest of these bytes. where: the file; wanted: the digest stored beside it; size: bytes of the file.

    SnapshotError for anything else. A text that would take too much memory is refused before it is parsed.
    """
    found = sha256(data).hexdigest()
    if found != wanted:
        raise SnapshotError(f"{where}: the manifest is damaged: wanted SHA-256 {wanted}, received {found}")
    raw.allow(where, "the manifest", raw.json_cost(data), size)
    contents: dict[str, Unchecked] = raw.parse_json(where, "the manifest", data)
    try:
        version = contents["manifest"]
        if type(version) is int and version > VERSION:
            raise SnapshotVersionError(f"{where}: wanted a manifest of version {VERSION}, received {version}")
        if type(version) is not int or version != VERSION:
            raise ValueError(f"manifest of version {version!r}")
        return Manifest(plain(where, contents["attributes"]), _entries(where, contents["entries"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SnapshotError(f"{where}: wanted a manifest of version {VERSION}, received {error!r}") from error


def in_hdf5(file: guarded.File, entry: str, sha256: str, group: str = "") -> Manifest:
    """The manifest that an HDF5 file has as a dataset of bytes, with its digest as an attribute `sha256` of a group.

    SnapshotError unless both are there and agree.
    """
    if entry not in file.datasets:
        raise SnapshotError(f"{file.path}: wanted an entry {entry!r}, received none of that name")
    stored = file.datasets[entry]
    if stored.dtype != np.uint8:
        raise SnapshotError(f"{file.path}: wanted a manifest of bytes, received {stored.shape} {stored.dtype}")
    return read(file.path, file.read(entry).tobytes(), file.attribute(sha256, group), file.size)


def plain(where: str, given: Mapping[str, object]) -> dict[str, Attribute]:
    """A copy of a file's attributes. SnapshotError names one that is no text, finite number, truth value or None."""
    found: dict[str, Attribute] = {}
    for name, value in given.items():
        if not isinstance(value, Attribute) or (isinstance(value, float) and not isfinite(value)):
            raise SnapshotError(
                f"{where}: attribute {name!r}: wanted a text or a finite number, received {value!r:.100}"
            )
        found[name] = value
    return found


def _entries(where: str, given: Mapping[str, Unchecked]) -> dict[str, ManifestEntry]:
    found: dict[str, ManifestEntry] = {}
    for path, (shape, dtype, sha) in given.items():
        if type(shape) is not list or not all(type(extent) is int and extent >= 0 for extent in shape):
            raise SnapshotError(f"{where}: entry {path!r}: wanted a shape, received {shape!r:.100}")
        if type(dtype) is not str or type(sha) is not str:
            raise SnapshotError(
                f"{where}: entry {path!r}: wanted a dtype and a digest, received {dtype!r:.50}, {sha!r:.50}"
            )
        found[path] = ManifestEntry(tuple(shape), dtype, sha)
    return found


def digest(array: Array) -> str:
    """SHA-256 of an array's bytes in C order, little-endian."""
    plain = np.ascontiguousarray(array)
    little = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
    return sha256(little.reshape(-1).view(np.uint8).data).hexdigest()
