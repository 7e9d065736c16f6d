"""Writes an HDF5 file array by array, each hashed while it is written, through a file that keeps errors from HDF5."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from types import TracebackType
from typing import TYPE_CHECKING

import h5py

from singa_lite.common.array_types import Array
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.output import SaverThreads
from singa_lite.snapshots.tree import LazyArray

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Hdf5Writer:
    """file: h5py's, for groups and attributes; arrays go through `add`."""

    def __init__(self, file: h5py.File, disk: Disk, threads: SaverThreads) -> None:
        self.file, self._disk, self._threads = file, disk, threads

    def add(self, entry: str, lazy: LazyArray, write: Callable[[Array], None]) -> None:
        """Make an array, and have `write` write it while it is entered into the manifest. It is dropped then."""
        array = lazy.fetch()
        with self._threads.entering(entry, array):
            write(array)
        self._disk.check()


@contextmanager
def writing(target: FileIO, made: Manifest) -> Iterator[Hdf5Writer]:
    """Make an HDF5 file in an empty file. made: the manifest that arrays are entered into."""
    with (
        SaverThreads(made, target.fileno()) as threads,
        Disk(target) as disk,
        h5py.File(disk, "w", libver="earliest") as file,
    ):
        yield Hdf5Writer(file, disk, threads)


class Disk(FileIO):
    """Keeps the first error, writes nothing after it, and raises it in `check` and at the end.

    HDF5 must not see it. It writes much of a file only when it closes it, and there h5py drops errors, or the process
    crashes (h5py issues 914 and 1120).
    """

    def __init__(self, file: FileIO) -> None:
        super().__init__(file.fileno(), "r+b", closefd=False)
        self._error: BaseException | None = None

    def write(self, data: ReadableBuffer) -> int:
        """Write all bytes of `data`; a single call to the system may write fewer."""
        left = memoryview(data)
        size = len(left)
        try:
            while left and self._error is None:
                left = left[super().write(left) :]
        except OSError as error:
            self._error = OSError(error.errno, f"{error.strerror}, with {len(left)} of {size} bytes not written")
        except BaseException as error:  # an interrupt too
            self._error = error
        return size

    def truncate(self, size: int | None = None) -> int:
        """As in any file; an error is kept."""
        try:
            return super().truncate(size) if self._error is None else 0
        except BaseException as error:
            self._error = error
            return 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """As in any file. Nothing in a closed one: after an interrupt HDF5's file may be dropped behind this one."""
        return 0 if self.closed else super().seek(offset, whence)

    def flush(self) -> None:
        """As in any file; nothing in a closed one."""
        if not self.closed:
            super().flush()

    def check(self) -> None:
        """Raise the first error, if there was one."""
        if self._error is not None:
            raise self._error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self.check()
