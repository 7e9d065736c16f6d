"""The native format: the tree in an HDF5 file, a dataset an array, attributes on the root. Needs h5py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from io import FileIO
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.net import FeedForwardNet
from singa_lite.snapshots import tree
from singa_lite.snapshots.atomic import replacing
from singa_lite.tensor import Shape, to_numpy

#: Groups within groups that a reader follows; ours has four, and HDF5 itself overflows the stack at some depth.
_DEPTH = 64


def save(net: FeedForwardNet, path: str | os.PathLike[str]) -> None:
    """Write the net to `path`. One array at a time is copied to the host.

    SnapshotError after an unfinished step and for what cannot be written; the file at `path` is then as before.
    """
    contents = tree.of_net(net)
    with replacing(path) as target, _Disk(target) as disk, h5py.File(disk, "w") as file:
        file.attrs.update(contents.attributes)
        for name, tensor in contents.tensors.items():
            _write(file, name, to_numpy(tensor))
            disk.check()


def load(net: FeedForwardNet, path: str | os.PathLike[str], optimizer: bool | None = None) -> None:
    """Read the net from `path`, as `tree.restore` says.

    SnapshotError for a file that is not HDF5, is damaged, or does not fit; FileNotFoundError if there is none.
    """
    name = os.fsdecode(path)
    with _reading(f"{name}: wanted a whole HDF5 file"):
        os.stat(name)  # refuses a missing file in plain words, and a name with a NUL, which HDF5 would cut there
        file = h5py.File(name, "r")
    with file:
        tree.restore(net, _Snapshot(name, file), optimizer)


class _Disk(FileIO):
    """What HDF5 writes through. The first error is kept; nothing is written after it; `check` and the end raise it.

    It must not reach HDF5, which writes much of a file only when it closes it: there h5py drops errors, or the
    process dies of them (h5py issues 914 and 1120).
    """

    def __init__(self, file: FileIO) -> None:
        super().__init__(file.fileno(), "r+b", closefd=False)
        self._error: BaseException | None = None

    def write(self, data: Any) -> int:
        """Write all of `data`, of which one call to the system may write less."""
        left = memoryview(data)
        try:
            while left and self._error is None:
                left = left[super().write(left) :]
        except BaseException as error:  # an interrupt too
            self._error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """As in any file, but for errors."""
        try:
            return super().truncate(size) if self._error is None else 0
        except BaseException as error:
            self._error = error
            return 0

    def check(self) -> None:
        """Raise the first error, if there was one."""
        if self._error is not None:
            raise self._error

    def __exit__(self, *reason: Any) -> None:
        super().__exit__(*reason)
        self.check()


def _write(file: h5py.File, name: str, array: NDArray[Any]) -> None:
    """Make a dataset. OSError for a name that HDF5 cannot store, such as "." or one with a NUL in it."""
    try:
        stored = file.create_dataset(name, data=array).name
    except (RuntimeError, TypeError, ValueError) as error:
        raise OSError(f"entry {name!r}: {error}") from error
    if stored != f"/{name}":
        raise OSError(f"entry {name!r}: its name in HDF5 would be {stored!r}")


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """What h5py raises at a damaged or foreign file, which may be nearly anything, as a SnapshotError."""
    try:
        yield
    except (SnapshotError, FileNotFoundError, MemoryError):
        raise
    except Exception as error:
        raise SnapshotError(f"{what}: {error}") from error


class _Snapshot:
    """An open file as `tree.Source`."""

    def __init__(self, path: str, file: h5py.File) -> None:
        self.path = path
        self._file = file

    def attribute(self, name: str) -> Any:
        """An attribute of the file, as a Python value if it is a single one; None where there is none."""
        with _reading(f"{self.path}: attribute {name!r} cannot be read"):
            value = self._file.attrs.get(name)
        return value.item() if isinstance(value, np.generic) else value

    @cached_property
    def shapes(self) -> dict[str, tuple[Shape, np.dtype[Any]]]:
        """All datasets. SnapshotError for what does not lie in this file itself."""
        links = self._links()
        members = {name: self._member(name, link) for name, link in links.items()}
        return {name: member for name, member in members.items() if member is not None}

    def _links(self) -> dict[str, Any]:
        """What the groups hold, by path; a group that can be reached in several ways is entered once."""
        links: dict[str, Any] = {}

        def note(name: str, link: Any) -> str | None:  # must not raise: h5py makes another error of it
            links[name] = link
            return name if name.count("/") > _DEPTH else None

        with _reading(f"{self.path}: the list of entries cannot be read"):
            deep = self._file.visititems_links(note)
        if deep is not None:
            raise SnapshotError(f"{self.path}: wanted groups at most {_DEPTH} deep, received entry {deep!r}")
        return links

    def _member(self, name: str, link: Any) -> tuple[Shape, np.dtype[Any]] | None:
        """Shape and dtype of a dataset, None for a group."""
        where = f"{self.path}: entry {name!r}"
        if not isinstance(link, h5py.HardLink):
            raise SnapshotError(f"{where}: wanted a dataset or a group, received a link")
        with _reading(f"{where} cannot be read"):
            member = self._file[name]
            if isinstance(member, h5py.Group):
                return None
            if not isinstance(member, h5py.Dataset) or member.external or member.is_virtual:
                raise SnapshotError(f"{where}: wanted a dataset stored in this file")
            return member.shape, member.dtype

    def read(self, path: str) -> NDArray[Any]:
        """The array at a path."""
        with _reading(f"{self.path}: entry {path!r} cannot be read"):
            array: NDArray[Any] = self._file[path][()]
        return array
