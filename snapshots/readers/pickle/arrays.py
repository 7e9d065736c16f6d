"""Descriptions of the strings, dtypes and arrays in a pickle, and the numbers of an array, read from the file."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import ByteArray, RawFile, Shape

_MOST_AXES = 32

#: Bytes of a name.
_MOST_NAME = 1 << 10

#: What Python's repr of bytes writes; `codecs.escape_decode` takes more. Possessive, so that it never backtracks.
_ESCAPED = re.compile(rb"(?:[^\\]++|\\[\\'\"nrt]|\\x[0-9a-fA-F]{2})*+")

#: An escape in raw-unicode-escape of a character beyond Latin-1.
_WIDE = re.compile(rb"\\U|\\u(?!00)")

#: The highest first byte in UTF-8 of a character of Latin-1.
_LATIN_1 = 0xC3


class Span(NamedTuple):
    """The position of a string in the file. coding: "bytes", "utf-8", "escaped" (with its quotes) or "raw-unicode".

    is_bytes: whether the pickle calls `_codecs.encode` on it, so that its characters are bytes, in Latin-1.
    """

    start: int
    size: int
    coding: str
    is_bytes: bool = False


class Global(NamedTuple):
    """A function or class that pickles of NumPy's arrays name."""

    name: str


#: {(module, name): description}: all that a pickle may name.
GLOBALS = {
    ("numpy.core.multiarray", "_reconstruct"): Global("_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"): Global("_reconstruct"),
    ("numpy", "ndarray"): Global("ndarray"),
    ("numpy", "dtype"): Global("dtype"),
    ("_codecs", "encode"): Global("encode"),
    ("__builtin__", "bytes"): Global("bytes"),
}


@dataclass(slots=True)
class PickledDType:
    """A dtype. text: as "f4"; order: "<", ">" or "|", set by `build`."""

    text: str
    order: str = ""

    def build(self, file: RawFile, state: tuple[object, ...]) -> None:
        """Takes (3, "<", None, None, None, -1, -1, 0): no fields, no metadata. SnapshotError for another."""
        plain = len(state) == 8 and state[0] == 3 and state[2:] == (None, None, None, -1, -1, 0)
        order = text(file, state[1]) if plain else ""
        if self.order or order not in ("<", ">") + ("|",) * self.text.endswith("1"):
            raise SnapshotError(f"{file.path}: wanted a dtype of numbers, received another state of {self.text!r}")
        self.order = order


@dataclass(slots=True)
class PickledArray:
    """An array. `build` sets all of it; until then data is None."""

    shape: Shape = ()
    dtype: DType = field(default_factory=lambda: np.dtype("f4"))
    order: str = "C"
    data: Span | None = None

    def build(self, file: RawFile, state: tuple[object, ...]) -> None:
        """Takes (1, shape, dtype, whether in Fortran's order, bytes). SnapshotError for another, and a second time."""
        if len(state) != 5 or state[0] != 1 or self.data is not None:
            raise SnapshotError(f"{file.path}: wanted the state of an array, received another")
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, PickledDType) or not dtype.order or not isinstance(data, Span):
            raise SnapshotError(f"{file.path}: wanted an array of numbers, received one of objects or of no bytes")
        if not isinstance(shape, tuple) or len(shape) > _MOST_AXES or not all(_is_extent(one) for one in shape):
            raise SnapshotError(f"{file.path}: wanted a shape of at most {_MOST_AXES} axes, received another")
        self.shape, self.data = shape, data
        self.dtype, self.order = np.dtype(dtype.order + dtype.text), "F" if fortran else "C"
        if self.nbytes > data.size:
            raise SnapshotError(f"{file.path}: wanted {self.nbytes} bytes for shape {shape}, received {data.size}")
        raw.check_shape(file.path, shape, self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers."""
        return prod(self.shape) * self.dtype.itemsize

    def read(self, file: RawFile, name: str) -> Array:
        """The numbers, C order, in the host's byte order."""
        where = f"{file.path}: entry {name!r}"
        flat = self._flat(where, file)
        if self.order == "C":
            return raw.to_array(where, flat, self.dtype, self.shape)
        return np.ascontiguousarray(raw.to_array(where, flat, self.dtype, self.shape[::-1]).T)

    def _flat(self, where: str, file: RawFile) -> ByteArray:
        """The numbers' bytes."""
        if self.data is None:
            raise SnapshotError(f"{where}: wanted an array, received one without numbers")
        try:
            data = _data(file, self.data)
        except ValueError as error:  # UnicodeError is one
            raise SnapshotError(f"{where}: wanted a string of bytes: {error}") from error
        if isinstance(data, np.ndarray):
            return data
        fixed = np.frombuffer(data, np.uint8)
        return fixed if self.dtype.isnative else fixed.copy()  # which is swapped in place


def called(file: RawFile, what: Global, given: tuple[object, ...]) -> Span | PickledDType | PickledArray | None:
    """Describes what a call in the pickle would make. None for a call that NumPy does not write."""
    if what.name == "_reconstruct" and len(given) == 3 and given[:2] == (GLOBALS["numpy", "ndarray"], (0,)):
        return PickledArray()
    if what.name == "dtype" and len(given) == 3 and isinstance(given[0], Span):
        name = text(file, given[0])
        return PickledDType(name) if re.fullmatch(r"f[248]|[iu][1248]|b1", name) else None
    if what.name == "encode" and len(given) == 2:
        characters, coding = given
        if not isinstance(characters, Span) or not isinstance(coding, Span):
            return None
        if characters.coding in ("utf-8", "raw-unicode") and text(file, coding) == "latin1":
            return characters._replace(is_bytes=True)
    if what.name == "bytes" and not given:  # how Python 3 writes b"" for Python 2
        return Span(0, 0, "bytes")
    return None


def text(file: RawFile, span: object) -> str:
    """The characters of a name; Python 2's strings are Latin-1. SnapshotError for what is no string, or a long one."""
    if not isinstance(span, Span) or span.size > _MOST_NAME:
        raise SnapshotError(f"{file.path}: wanted a name of at most {_MOST_NAME} bytes, received another value")
    data = bytes(file.read("a name", span.start, span.size))
    try:
        if span.coding == "utf-8":
            return data.decode("utf-8")
        if span.coding == "raw-unicode":
            found = data.decode("raw-unicode-escape")
            found.encode()  # ValueError for half a surrogate pair
            return found
        return (_unescaped(data) if span.coding == "escaped" else data).decode("latin-1")
    except ValueError as error:
        raise SnapshotError(f"{file.path}: wanted a name, received {data!r}: {error}") from error


def _data(file: RawFile, span: Span) -> bytes | ByteArray:
    """A string's bytes, with one copy in memory when it returns. ValueError for a text that is no bytes."""
    data = file.read("an array's numbers", span.start, span.size)
    if span.coding == "bytes":
        return data
    if span.coding == "escaped":
        return _unescaped(data.data)
    if not span.is_bytes:
        raise ValueError("it is a text")
    characters = _characters(data.data, span.coding)
    del data
    return characters.encode("latin-1")


def _characters(data: memoryview, coding: str) -> str:
    """The characters. ValueError for one beyond Latin-1: Python would then take two or four bytes for each of them."""
    if coding == "utf-8":
        if len(data) and int(np.frombuffer(data, np.uint8).max()) > _LATIN_1:
            raise ValueError("a character that is no byte")
        return str(data, "utf-8")
    if _WIDE.search(data):
        raise ValueError("a character that is no byte")
    return codecs.raw_unicode_escape_decode(data)[0]


def _unescaped(data: bytes | memoryview) -> bytes:
    """Undoes Python 2's repr of bytes, which is in `data` with its quotes."""
    if len(data) < 2 or data[0] != data[-1] or data[0] not in b"'\"":
        raise ValueError("a string without its quotes")
    inside = data[1:-1]
    if not _ESCAPED.fullmatch(inside):
        raise ValueError("an escape that repr does not write")
    return codecs.escape_decode(inside)[0]


def _is_extent(value: object) -> bool:
    return type(value) is int and value >= 0


def kind(value: object) -> str:
    """What a value is, for errors. The value itself may be far longer than the file: one tuple in it many times."""
    return type(value).__name__.removeprefix("Pickled")
