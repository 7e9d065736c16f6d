"""Writes all bytes to a file, or raises: those of arrays in C order, little-endian, whatever their strides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.atomic import write_all as write_all
from singa_lite.common.errors import SnapshotError
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
