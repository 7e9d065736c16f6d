"""The bytes of an HDF5 file that is not trusted. Each byte may belong to one part of the file only.

That rule excludes cycles, objects with several names, and headers that claim the same bytes many times. It bounds the
work and the memory of a walk by the file's length. Only the paths of entries take more than the file has of them, since
each repeats the names of its groups: they are counted apart.
"""

from __future__ import annotations

import os
import sys
from io import FileIO

import numpy as np
from numpy.typing import NDArray

#: Bytes that a file must have for each part beyond the first ones. What is noted of a part takes about twice that.
_EACH, _FIRST = 128, 4096

#: Bytes that paths may have beyond twice the file's.
_PATHS = 4 << 20


class ClaimedBytes:
    """Reads a file's bytes, and notes which part each belongs to. ValueError for what h5py does not write."""

    def __init__(self, file: FileIO) -> None:
        self.length = os.fstat(file.fileno()).st_size
        self._file = file
        self._parts: dict[int, int] = {}  # where each begins and ends
        self._taken = self._named = 0

    def take(self, address: int, length: int, magic: bytes = b"") -> bytes:
        """Read bytes and claim them for one part, which must begin with `magic`."""
        self.claim(address, length)
        data = self.peek(address, length)
        if data[: len(magic)] != magic:
            raise ValueError(f"wanted {magic!r} at byte {address}")
        return data

    def peek(self, address: int, length: int) -> bytes:
        """Read bytes without claiming them."""
        self._check(address, length)
        self._file.seek(address)
        data = self._file.read(length)
        if len(data) < length:
            raise ValueError(f"wanted {length} bytes at byte {address}, received {len(data)}")
        return data

    def claim(self, address: int, length: int) -> None:
        """Give bytes to one part. ValueError if another part begins there, or if all parts are larger than the file.

        `check_overlap` looks once, in the end, for parts that overlap.
        """
        self._check(address, length)
        if length == 0:
            return
        if address in self._parts:
            raise ValueError(f"byte {address} begins two parts, or one entry has two names")
        self.expect(1)
        self._taken += length
        if self._taken > self.length:
            raise ValueError(f"parts of {self._taken} bytes in a file of {self.length}")
        self._parts[address] = address + length

    def expect(self, count: int) -> None:
        """ValueError if the file is too small for so many more parts."""
        if len(self._parts) + count > _FIRST + self.length // _EACH:
            raise ValueError(f"{len(self._parts) + count} parts and more in a file of {self.length} bytes")

    def name(self, path: str) -> None:
        """Count the path of an entry. ValueError if all paths take more than twice the file's size and `_PATHS`."""
        self._named += sys.getsizeof(path)
        if self._named > 2 * self.length + _PATHS:
            raise ValueError(f"paths of {self._named} bytes and more in a file of {self.length}")

    def check_overlap(self) -> None:
        """ValueError if a byte belongs to two parts."""
        starts = np.fromiter(self._parts, np.int64, len(self._parts))
        ends = np.fromiter(self._parts.values(), np.int64, len(self._parts))
        order = starts.argsort()
        (overlaps,) = np.nonzero(ends[order][:-1] > starts[order][1:])
        if len(overlaps):
            start, end = starts[order][overlaps[0] + 1], ends[order][overlaps[0]]
            raise ValueError(f"bytes {start} to {end} belong to two parts")

    def read_into(self, address: int, buffer: NDArray[np.uint8]) -> None:
        """Fill a buffer with the bytes from there."""
        self._check(address, len(buffer))
        self._file.seek(address)
        left = memoryview(buffer.data)
        while left:
            count = self._file.readinto(left)
            if not count:
                raise ValueError(f"the file ends {len(left)} bytes too early")
            left = left[count:]

    def _check(self, address: int, length: int) -> None:
        if address + length > self.length:
            raise ValueError(f"bytes {address} to {address + length} of a file of {self.length}")
