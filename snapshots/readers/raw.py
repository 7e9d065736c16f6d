"""Opens ordinary files alone, reads their bytes by offset and their JSON, and bounds the memory of readers.

JSON with keys that come twice, NaN or infinity is refused.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from math import prod
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.array_types import Array, DType
from singa_lite.common.atomic import SelfClosing
from singa_lite.common.errors import SnapshotError

Shape = tuple[int, ...]
ByteArray = NDArray[np.uint8]
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

#: JSON whose parts are taken as if they were of the right kinds: what Python raises where they are not is caught there.
Unchecked: TypeAlias = Any

#: Bytes that Python takes at most for each "[", "{", "," and ":", measured on one object of many different keys.
_VALUE = 104

#: Copies of the text that exist at a time; and bytes of a character in a text that is not ASCII, at most.
_COPIES, _WIDEST = 3, 4

#: Bytes that a reader may allocate beyond twice the file's size: for Python's objects, which are many, and for arrays.
ROOM, ARRAY_ROOM = 32 << 20, 1 << 20


class RawFile:
    """A file that is read by offsets. path: its name; size: its bytes when it was opened.

    allowance: readers may allocate twice as many bytes, and `ROOM` or `ARRAY_ROOM` beyond.
    """

    def __init__(self, path: str, file: FileIO) -> None:
        self.path, self._file = path, file
        self.size = self.allowance = os.fstat(file.fileno()).st_size

    def state(self) -> FileState:
        """The file's state, which differs once the file was changed."""
        return state_of(self._file)

    def read(self, what: str, offset: int, count: int) -> ByteArray:
        """Read so many bytes at an offset. SnapshotError, before memory is taken, if the file does not have them."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise SnapshotError(
                f"{self.path}: {what}: wanted bytes {offset} to {offset + count}, received a file of {self.size}"
            )
        data = np.empty(count, np.uint8)
        left = data.data
        try:
            self._file.seek(offset)
            while left:
                got = self._file.readinto(left)
                if not got:
                    raise OSError("the file has become shorter")
                left = left[got:]
        except OSError as error:
            raise SnapshotError(f"{self.path}: {what} cannot be read: {error}") from error
        return data

    def buffered(self) -> BufferedReader:
        """The file from its beginning, for readers that go through it; it shares the position with other reads."""
        self._file.seek(0)
        return open(self._file.fileno(), "rb", closefd=False)

    def allow(self, what: str, count: int) -> None:
        """SnapshotError if Python's objects of so many bytes are more than twice the file's size and `ROOM`."""
        allow(self.path, what, count, self.allowance)

    def allow_arrays(self, what: str, count: int, hint: str = "") -> None:
        """SnapshotError if arrays of so many bytes are more than twice the file's size and `ARRAY_ROOM`.

        hint: what can be done about it, for the error.
        """
        allow(self.path, what, count, self.allowance, ARRAY_ROOM, hint)


def allow(where: str, what: str, count: int, size: int, room: int | None = None, hint: str = "") -> None:
    """SnapshotError if `count` bytes are more than 2 * size + room. size: bytes of the file; room: None is `ROOM`.

    hint: what can be done about it, for the error.
    """
    limit = 2 * size + (ROOM if room is None else room)
    if count > limit:
        text = f"would take about {count} bytes, allowed are {limit} for a file of {size}"
        raise SnapshotError(f"{where}: {what}: {text}{hint and f'; {hint}'}")


def check_shape(where: str, shape: Shape, dtype: DType) -> None:
    """SnapshotError for a shape that NumPy refuses: one of 2**63 bytes or more, where an extent of 0 counts as 1."""
    if dtype.itemsize * prod(max(1, extent) for extent in shape) >= 1 << 63:
        raise SnapshotError(f"{where}: wanted a shape of less than 2**63 bytes, received {str(shape)[:100]}")


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[RawFile]:
    """Open a file. SnapshotError for a folder, a device or what may not be read; FileNotFoundError if there is none."""
    with to_read(path, "cannot be read") as file:
        yield RawFile(os.fsdecode(path), file)


def to_array(where: str, data: ByteArray, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Bytes in C order as an array in the host's byte order. SnapshotError for bool that is neither 0 nor 1."""
    if dtype.kind == "b" and data.size and int(data.max()) > 1:
        raise SnapshotError(f"{where}: wanted bool, bytes of 0 or 1, received {int(data.max())}")
    try:
        array = data.view(dtype).reshape(shape)
    except ValueError as error:
        raise SnapshotError(f"{where}: wanted {shape} {dtype}, received {data.size} bytes: {error}") from error
    return array if dtype.isnative else array.byteswap(inplace=True).view(dtype.newbyteorder("="))


class FileState(NamedTuple):
    """size: bytes; modified: when the contents were last changed; changed: when anything was; both in nanoseconds."""

    size: int
    modified: int
    changed: int


def state_of(file: FileIO) -> FileState:
    """The file's state, which differs once the file was changed."""
    found = os.fstat(file.fileno())
    return FileState(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@contextmanager
def to_read(path: str | bytes | os.PathLike[str], refusal: str) -> Iterator[FileIO]:
    """The file, without a buffer. refusal: what the SnapshotError says, between the file's name and the cause.

    SnapshotError for a folder, a device or what may not be read; FileNotFoundError if there is none.
    """
    name = os.fsdecode(path)
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):  # before it is opened: opening a pipe waits for a writer
            raise OSError("it is no ordinary file")
        file = SelfClosing(name)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise SnapshotError(f"{name}: {refusal}: {error}") from error
    with file:
        yield file


def json_cost(data: bytes) -> int:
    """An upper bound of the bytes that the values of a text take, counted without parsing it."""
    values = sum(data.count(mark) for mark in (b"[", b"{", b",", b":"))
    width = 1 if data.isascii() and b"\\u" not in data else _WIDEST
    return _VALUE * values + _COPIES * width * len(data)


def load_json(file: RawFile, what: str, data: bytes | ByteArray) -> dict[str, Json]:
    """The JSON object in a text. SnapshotError for anything else."""
    text = bytes(data)
    file.allow(what, json_cost(text))
    return parse_json(file.path, what, text)


def parse_json(where: str, what: str, text: bytes) -> dict[str, Json]:
    """The JSON object in a text whose cost was checked before. SnapshotError for anything else."""
    try:
        found = json.loads(text.decode("utf-8"), object_pairs_hook=_without_doubles, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise SnapshotError(f"{where}: {what}: wanted JSON, received {error}") from error
    if not isinstance(found, dict):
        raise SnapshotError(f"{where}: {what}: wanted a JSON object, received {type(found).__name__}")
    return found


def _without_doubles(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} twice")
        found[name] = value
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text}, which is no JSON")
