"""Bytes to a file: all of them or an error, in C order, little-endian, however an array lies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from typing import Any

import numpy as np

from singa_lite.array_types import Array, DType
from singa_lite.errors import SnapshotError
from singa_lite.snapshots.readers.raw import ByteArray

#: Bytes that are copied at once, where bytes must be copied.
_PIECE = 1 << 20

#: Rows of an array that are copied at a time, at least, and elements by which their copies are longer.
_ROWS, _PAD = 64, 16


def write_all(file: FileIO, data: Any) -> None:
    """Write all bytes of `data`, of which one call to the system may write less. OSError says how far it came."""
    left = memoryview(data)
    size = len(left)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        written = size - len(left)
        raise OSError(error.errno, f"{os.strerror(error.errno or 0)} after {written} of {size} bytes") from error


def write_array(file: FileIO, array: Array) -> None:
    """Write an array's bytes in C order, little-endian, however it lies."""
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
    """The array's bytes in C order, little-endian: itself if it lies so, else copies of less than a MiB."""
    little = array.dtype.newbyteorder("<")
    if array.ndim == 0 or (array.flags.c_contiguous and array.dtype == little):
        yield np.ascontiguousarray(array, little).reshape(-1).view(np.uint8)
        return
    for start, stop in _runs(array):
        yield np.ascontiguousarray(_turned(array[start:stop]), little).reshape(-1).view(np.uint8)


def copied(array: Array, dtype: DType) -> Array:
    """A copy in C order, for an array of at least one axis that lies otherwise."""
    found = np.empty(array.shape, dtype)
    for start, stop in _runs(array):
        found[start:stop] = _turned(array[start:stop])
    return found


def _runs(array: Array) -> Iterator[tuple[int, int]]:
    """Where pieces begin and end on the first axis. Each is a quarter of `_PIECE`: three of them exist at a time."""
    rows = max(_ROWS, _PIECE // 4 * len(array) // max(1, array.nbytes))
    return ((start, start + rows) for start in range(0, len(array), rows))


def _turned(array: Array) -> Array:
    """The same values, laid out so that a copy of them in C order is quick.

    In a transposed array with extents of 2**n, all that is read one after the other lies in the same few lines of the
    cache. A copy in the order of memory, with rows that are a little longer, is five times as fast to read so.
    """
    order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    lying = array.transpose(order)
    *outer, width = lying.shape
    if width < _ROWS:
        return array
    padded: Array = np.empty((*outer, width + _PAD), array.dtype)[..., :width]
    padded[...] = lying
    return padded.transpose(np.argsort(order))
