"""The manifest of a snapshot: every array's shape, dtype and SHA-256, the attributes, and a SHA-256 of it all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.tensor import Shape

#: Of the manifest's form.
VERSION = 1

Attribute = str | int | float | bool | None


class Entry(NamedTuple):
    """What is known of an array. sha256: of its bytes in C order, little-endian, as hexadecimal digits."""

    shape: Shape
    dtype: str
    sha256: str


@dataclass
class Manifest:
    """Made while arrays are written, stored behind them, and checked against while they are read."""

    attributes: dict[str, Attribute] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)

    def enter(self, path: str, array: NDArray[Any]) -> None:
        """Note an array that is being written."""
        self.entries[path] = Entry(array.shape, array.dtype.name, digest(array))

    def check(self, where: str, path: str, array: NDArray[Any]) -> None:
        """SnapshotError that names the array unless it is, byte for byte, the one that was written. where: the file."""
        entry = self.entries.get(path)
        if entry is None:
            raise SnapshotError(f"{where}: entry {path!r}: wanted one of the manifest's")
        form = array.shape, array.dtype.name
        if form != entry[:2]:
            raise SnapshotError(f"{where}: entry {path!r}: wanted {entry.shape} {entry.dtype}, received {form}")
        found = digest(array)
        if found != entry.sha256:
            raise SnapshotError(
                f"{where}: entry {path!r} is damaged: wanted bytes with SHA-256 {entry.sha256}, received {found}"
            )

    def to_bytes(self) -> bytes:
        """As JSON, the same text for the same contents."""
        entries = {path: [list(e.shape), e.dtype, e.sha256] for path, e in self.entries.items()}
        contents = {"manifest": VERSION, "attributes": self.attributes, "entries": entries}
        return json.dumps(contents, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @property
    def sha256(self) -> str:
        """Of the whole: of this text, which has the digest of every array."""
        return sha256(self.to_bytes()).hexdigest()


def read(where: str, data: bytes, wanted: Any) -> Manifest:
    """The manifest of these bytes. wanted: the digest stored beside it. SnapshotError for anything else."""
    found = sha256(data).hexdigest()
    if found != wanted:
        raise SnapshotError(f"{where}: the manifest is damaged: wanted SHA-256 {wanted}, received {found}")
    try:
        contents = json.loads(data)
        if contents["manifest"] != VERSION:
            raise ValueError(f"manifest of version {contents['manifest']!r}")
        return Manifest(dict(contents["attributes"]), _entries(contents["entries"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SnapshotError(f"{where}: wanted a manifest of version {VERSION}, received {error!r}") from error


def _entries(given: Mapping[str, Any]) -> dict[str, Entry]:
    return {path: Entry(tuple(map(int, shape)), str(dtype), str(sha)) for path, (shape, dtype, sha) in given.items()}


def digest(array: NDArray[Any]) -> str:
    """SHA-256 of an array's bytes in C order, little-endian."""
    plain = np.ascontiguousarray(array)
    little = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
    return sha256(little.reshape(-1).view(np.uint8).data).hexdigest()
