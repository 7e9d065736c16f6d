"""The tree in a NumPy archive, which `numpy.load` reads: "<path>.npy" for each array, stored, and the manifest.

Characters of a layer's name that a path in an archive may not have are written as "%" and two hexadecimal digits.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import FileIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.atomic import replacing
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import manifest, output
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.output import SaverThreads
from singa_lite.snapshots.readers import raw, zip_archive
from singa_lite.snapshots.readers.raw import RawFile
from singa_lite.snapshots.readers.zip_archive import Member, NpyArray, npy_array
from singa_lite.snapshots.tree import LazyArray, Tree, weights_tree

_MANIFEST, _SHA256 = "manifest", "manifest_sha256"

#: Bytes of a member beyond its array's, about: its headers with the name twice, and the head of the .npy file.
_OVERHEAD = 512

#: What is escaped: control characters, "%" and "\\"; names "." and ".." between slashes; the colon of a drive; and the
#: first letter of the manifest's own names.
_ODD = re.compile(r"[%\\\x00-\x1f]|(?<![^/])\.{1,2}(?![^/])|(?<=^.):|^m(?=anifest(_sha256)?\Z)")

#: An empty name between slashes, which is written as "%".
_EMPTY = re.compile(r"(?<![^/])(?=/)")


def member_name(path: str) -> str:
    """The member of a path: "parameters/../weight" is "parameters/%2E%2E/weight.npy", "/a" is "%/a.npy"."""
    escaped = _ODD.sub(lambda found: "".join(f"%{ord(char):02X}" for char in found[0]), path)
    return _EMPTY.sub("%", escaped) + ".npy"


def save(contents: Tree, path: str | os.PathLike[str]) -> None:
    """Write a tree, one array at a time. SnapshotError for what cannot be written; the old file then stays."""
    shown = os.fsdecode(path)
    total = sum(lazy.nbytes + _OVERHEAD for lazy in contents.arrays.values())
    raw.allow(shown, "the list of members, when it is read", zip_archive.cost(len(contents.arrays) + 2), total)
    known = Manifest(contents.attributes)
    with replacing(path) as file, _archive(file) as archive, SaverThreads(known, file.fileno()) as threads:
        for entry, lazy in contents.arrays.items():
            array = lazy.fetched(f"{shown}: entry {entry!r}")
            with threads.entering(entry, array):
                _write(archive, entry, member_name(entry), array, total)
            del array  # before the next one is fetched
        raw.allow(shown, "the manifest, when it is read", raw.json_cost(known.to_bytes()), total)
        for name, data in ((_MANIFEST, known.to_bytes()), (_SHA256, bytes.fromhex(known.sha256))):
            _write(archive, name, f"{name}.npy", np.frombuffer(data, np.uint8), total)


class _WholeWriter:
    """The file for `zipfile`: a write writes all bytes, and `zipfile` cannot close it.

    After an error it writes nothing: `zipfile` ends the member that failed, and would raise a second error there.
    """

    def __init__(self, file: FileIO) -> None:
        self.seek, self.tell, self.flush = file.seek, file.tell, file.flush
        self._file, self._is_broken = file, False

    def write(self, data: bytes | memoryview) -> int:
        """Write all of it."""
        if not self._is_broken:
            self._is_broken = True
            output.write_all(self._file, data)
            self._is_broken = False
        return len(data)


class _Archive(ZipFile):
    """An archive that is closed only when it is whole.

    `zipfile` closes one that is dropped, and would raise an error there that hides the first one, such as a Ctrl-C.
    """

    def __del__(self) -> None:
        """Does not close it, as `zipfile` does."""


@contextmanager
def _archive(file: FileIO) -> Iterator[ZipFile]:
    """An archive to write. It is closed unless the body raises."""
    archive = _Archive(_WholeWriter(file), "w", ZIP_STORED)  # type: ignore[call-overload]
    yield archive
    with _refused():
        archive.close()


@contextmanager
def _refused() -> Iterator[None]:
    """Turns what `zipfile` refuses into an OSError: a name of more than 65535 bytes, or one that is no Unicode."""
    try:
        yield
    except (ValueError, struct.error) as error:
        raise OSError(f"it cannot be a zip archive: {error}") from error


def _write(archive: ZipFile, entry: str, name: str, array: Array, total: int) -> None:
    """A member of this name in the .npy format, of version 1.0."""
    member = ZipInfo(name)  # dated 1980, so that equal contents give equal files
    member.file_size = array.nbytes + _OVERHEAD  # by which `zipfile` decides on 64-bit sizes
    with output.writing(entry, total), _refused(), archive.open(member, "w") as target:
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        np.lib.format.write_array_header_1_0(target, np.lib.format.header_data_from_array_1_0(little))
        for piece in output.pieces(little):
            target.write(piece.data)


@contextmanager
def opened(path: str | os.PathLike[str], wanted: Tree | None) -> Iterator[Tree]:
    """A file as a tree. One without a manifest, of another program, is read unverified: see `weights_tree`."""
    with raw.reading(path) as file:
        members = {_path_of(file.path, name): member for name, member in zip_archive.members(file).items()}
        known = _manifest(file, members)
        if known is not None:
            members = _entries(file.path, members, known)
        arrays = {path: _lazy(file, path, member, known) for path, member in members.items()}
        if known is None:
            yield weights_tree(file.path, arrays, wanted)
        else:
            yield Tree(arrays, dict(known.attributes), file.path)


def _path_of(where: str, name: str) -> str:
    if not name.endswith(".npy"):
        raise SnapshotError(f"{where}: wanted arrays, whose names end in .npy, received {name!r}")
    return name.removesuffix(".npy")


def _manifest(file: RawFile, members: Mapping[str, Member]) -> Manifest | None:
    """The manifest of a file of ours, None for another program's."""
    if _MANIFEST not in members and _SHA256 not in members:
        return None
    found = []
    for name in (_MANIFEST, _SHA256):
        if name not in members:
            raise SnapshotError(f"{file.path}: wanted an entry {name!r}, received none of that name")
        array = npy_array(file, members[name]).read()
        if array.dtype != np.uint8:
            raise SnapshotError(f"{file.path}: entry {name!r}: wanted uint8, received {array.dtype}")
        found.append(array.tobytes())
    text, digest = found
    return manifest.read(file.path, text, digest.hex(), file.size)


def _entries(where: str, members: Mapping[str, Member], known: Manifest) -> dict[str, Member]:
    """The members by path. SnapshotError unless they are the manifest's entries, all of them and no others."""
    names = {path: member_name(path).removesuffix(".npy") for path in known.entries}
    differing = sorted({*names.values(), _MANIFEST, _SHA256} ^ members.keys())
    if differing:
        raise SnapshotError(f"{where}: wanted the manifest's entries, received names that differ in {differing}")
    return {path: members[name] for path, name in names.items()}


def _lazy(file: RawFile, path: str, member: Member, known: Manifest | None) -> LazyArray:
    """The array at a path, verified if the file has a manifest; else it may be a view."""
    found = npy_array(file, member)
    read = found.read if known is None else partial(_verified, file, path, found, known)
    return LazyArray(found.shape, found.dtype.newbyteorder("="), read)


def _verified(file: RawFile, path: str, found: NpyArray, known: Manifest) -> Array:
    array = found.read()
    known.check(file.path, path, array, file.state())
    return array
