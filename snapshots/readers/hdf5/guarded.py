"""The one reader of HDF5 files. It trusts nothing, and reads the bytes itself: libhdf5 never opens the file.

HDF5 can name other files (external links, external and virtual data). libhdf5 follows such names, allocates what a
header claims, and has crashed on damaged headers. This module reads a small part of the format, which h5py writes by
default: superblock 0, groups with symbol tables, datasets in one piece. Errors name what else a file has.
All is checked before the first array is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from io import FileIO
from types import MappingProxyType

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers.hdf5 import objects
from singa_lite.snapshots.readers.hdf5.claimed_bytes import ClaimedBytes
from singa_lite.snapshots.readers.hdf5.messages import Value
from singa_lite.snapshots.readers.hdf5.objects import Dataset, Object, Symbol, members
from singa_lite.snapshots.readers.raw import FileState, state_of, to_read

#: Groups within groups: files of this package have four, and one for each layer that holds another one.
_DEPTH = 1024


@contextmanager
def opened(path: str | bytes | os.PathLike[str]) -> Iterator[File]:
    """The file at `path`. FileNotFoundError if there is none, SnapshotError for what is no HDF5 file of this kind."""
    with to_read(path, "wanted a whole HDF5 file") as file:
        yield File(os.fsdecode(path), file)


@contextmanager
def written(where: str, file: FileIO) -> Iterator[File]:
    """Opens a file that was just written, so that a writer fails where the reader would.

    where: the name in the errors, which say what could not be read.
    """
    with FileIO(file.fileno(), closefd=False) as same:
        yield File(f"{where}: cannot be written, since it could not be read", same)


class File:
    """An open file. Every error is a SnapshotError that names the file and the entry.

    path: its name; size: its bytes. Entries are named by their path, "a/b"; the root is "".
    """

    def __init__(self, path: str, file: FileIO) -> None:
        self.path = path
        self._file = file
        self._bytes = ClaimedBytes(file)
        self.size = self._bytes.length
        with self._reading("wanted a whole HDF5 file"):
            self._addresses = {"": objects.root_of(self._bytes)}
            self._root = objects.object_at(self._bytes, self._addresses[""])
            if self._root.symbols is None:
                raise ValueError("wanted a group at the root")

    @cached_property
    def datasets(self) -> Mapping[str, Dataset]:
        """All datasets by path: shape, dtype, and address in this file. No two of them overlap."""
        found: dict[str, Dataset] = {}
        left = self._members("", self._root)
        while left:
            symbol = left.pop()
            member = self._member(symbol)
            self._addresses[symbol.name] = symbol.address
            if member.dataset is not None:
                found[symbol.name] = member.dataset
            else:
                left += self._members(symbol.name, member)
        with self._reading("the list of entries cannot be read"):
            self._bytes.check_overlap()
        return MappingProxyType(found)

    @cached_property
    def groups(self) -> frozenset[str]:
        """The paths of all groups but the root."""
        datasets = self.datasets.keys()  # this walk also fills self._addresses
        return frozenset(self._addresses.keys() - datasets - {""})

    def attributes(self, path: str = "") -> dict[str, Value | None]:
        """All attributes of a group or a dataset: numbers, truth values, texts, or lists of them."""
        return {name: self.attribute(name, path) for name in self._object(path).attributes}

    def attribute(self, name: str, path: str = "") -> Value | None:
        """One attribute of a group or a dataset; None where there is none of that name."""
        found = self._object(path).attributes.get(name)
        if found is None:
            return None
        with self._reading(f"{_entry(path)}attribute {name!r} cannot be read"):
            return found.value(partial(objects.text_at, self._bytes))

    def read(self, path: str) -> Array:
        """The array at a path."""
        dataset = self.datasets.get(path)
        if dataset is None:
            raise SnapshotError(f"{self.path}: wanted a dataset {path!r}, received none of that name")
        with self._reading(f"entry {path!r} cannot be read"):
            array: Array = np.empty(dataset.shape, dataset.dtype)
            raw = array.reshape(-1).view(np.uint8)
            self._bytes.read_into(dataset.address, raw)
            if dataset.dtype.kind == "b" and raw.max(initial=0) > 1:
                raise ValueError("truth values that are neither 0 nor 1")
        return array

    def state(self) -> FileState:
        """The file's state, which differs once the file was changed."""
        return state_of(self._file)

    def _object(self, path: str) -> Object:
        """The object at a path. It is read again, since attributes are not kept."""
        if not path:
            return self._root
        if path not in self.datasets and path not in self.groups:
            raise SnapshotError(f"{self.path}: wanted an entry {path!r}, received none of that name")
        with self._reading(f"entry {path!r} cannot be read"):
            return objects.object_at(ClaimedBytes(self._file), self._addresses[path])

    def _member(self, symbol: Symbol) -> Object:
        with self._reading(f"entry {symbol.name!r}"):
            if symbol.is_link:
                raise ValueError("wanted a dataset or a group, received a link")
            if symbol.name.count("/") >= _DEPTH:
                raise ValueError(f"wanted groups at most {_DEPTH} deep")
            return objects.object_at(self._bytes, symbol.address)

    def _members(self, path: str, group: Object) -> list[Symbol]:
        """The members of a group under whole paths, in the reverse order of their names."""
        head = f"{path}/" if path else ""
        found: list[Symbol] = []
        with self._reading(f"{_entry(path)}the list of entries cannot be read"):
            for symbol in members(self._bytes, group):
                found.append(symbol._replace(name=head + symbol.name))
                self._bytes.name(found[-1].name)
        found.sort(reverse=True)
        return found

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Turns a ValueError or OSError of this block into a SnapshotError that names the file."""
        try:
            yield
        except SnapshotError:
            raise
        except (ValueError, OSError) as error:
            raise SnapshotError(f"{self.path}: {what}: {error}") from error


def _entry(path: str) -> str:
    return f"entry {path!r}: " if path else ""
