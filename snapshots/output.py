"""Writes arrays to a file in C order, little-endian, whatever their strides; threads hash and sync them meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import FileIO

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.atomic import write_all as write_all
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.readers.raw import ByteArray

#: Bytes of an array that are copied at once, if it must be copied.
_PIECE = 1 << 20

#: The fewest rows of an array that are copied at once, and elements by which each row of a copy is padded.
_ROWS, _PAD = 64, 16


def write_array(file: FileIO, array: Array) -> None:
    """Write an array's bytes in C order, little-endian, whatever its strides."""
    for piece in pieces(array):
        write_all(file, piece.data)


@contextmanager
def writing(entry: str, total: int) -> Iterator[None]:
    """Add to an OSError of this block which entry was being written, and how many bytes the whole file needs."""
    try:
        yield
    except SnapshotError:
        raise
    except OSError as error:
        raise OSError(
            error.errno, f"entry {entry!r}: {error.strerror or error}; the whole file would have {total}"
        ) from error


def pieces(array: Array) -> Iterator[ByteArray]:
    """The array's bytes in C order, little-endian: a view if it lies so, else copies of less than a MiB."""
    little = array.dtype.newbyteorder("<")
    if array.ndim == 0 or (array.flags.c_contiguous and array.dtype == little):
        yield np.ascontiguousarray(array, little).reshape(-1).view(np.uint8)
        return
    for start, stop in _runs(array):
        yield np.ascontiguousarray(_in_memory_order(array[start:stop]), little).reshape(-1).view(np.uint8)


def copied(array: Array, dtype: DType) -> Array:
    """A copy in C order of an array that lies otherwise, of at least one axis."""
    found = np.empty(array.shape, dtype)
    for start, stop in _runs(array):
        found[start:stop] = _in_memory_order(array[start:stop])
    return found


def _runs(array: Array) -> Iterator[tuple[int, int]]:
    """Where pieces begin and end on the first axis. Each has a quarter of `_PIECE`, as three exist at a time."""
    rows = max(_ROWS, _PIECE // 4 * len(array) // max(1, array.nbytes))
    return ((start, start + rows) for start in range(0, len(array), rows))


def _in_memory_order(array: Array) -> Array:
    """The same values, laid out so that copying them in C order is fast.

    In a transposed array with extents of 2**n, elements that are read one after the other compete for the same few
    lines of the cache. Reading them from a copy in the order of memory, with padded rows, is five times as fast.
    """
    order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    lying = array.transpose(order)
    *outer, width = lying.shape
    if width < _ROWS:
        return array
    padded: Array = np.empty((*outer, width + _PAD), array.dtype)[..., :width]
    padded[...] = lying
    return padded.transpose(np.argsort(order))


#: The least bytes of an array that is hashed in a thread.
_LARGE = 1 << 20


class SaverThreads:
    """Two threads of one saver. handle: of the new file. `entering` or the end raises an error of a thread."""

    def __init__(self, known: Manifest, handle: int) -> None:
        self._known, self._handle = known, handle
        self._threads = ThreadPoolExecutor(2)
        self._synced: Future[None] | None = None

    @contextmanager
    def entering(self, path: str, array: Array) -> Iterator[None]:
        """Enter an array into the manifest while the body writes it.

        After the body the bytes of a large one are brought to the disk while the next one is hashed. Otherwise the
        fsync in the end would have to wait for all of them.
        """
        if array.nbytes < _LARGE:
            self._known.enter(path, array)
            yield
            return
        entered = self._threads.submit(self._known.enter, path, array)
        yield
        entered.result()
        if self._synced is None or self._synced.done():
            self._check()
            self._synced = self._threads.submit(os.fsync, self._handle)

    def _check(self) -> None:
        """Raise the error of the last fsync. The system reports an error once: a later fsync would not repeat it."""
        if self._synced is not None:
            self._synced.result()

    def __enter__(self) -> SaverThreads:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._threads.shutdown()
        if kind is None:
            self._check()
