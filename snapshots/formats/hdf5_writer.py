"""Writes an HDF5 file array by array, each hashed while it is written. Formats decide what is written where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO

import h5py

from singa_lite.common.array_types import Array
from singa_lite.snapshots.files.disk import Disk
from singa_lite.snapshots.files.saver_threads import SaverThreads
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.tree import LazyArray


class Hdf5Writer:
    """file: h5py's, for groups and attributes; arrays go through `put`."""

    def __init__(self, file: h5py.File, disk: Disk, threads: SaverThreads) -> None:
        self.file, self._disk, self._threads = file, disk, threads

    def put(self, entry: str, lazy: LazyArray, write: Callable[[Array], None]) -> None:
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
