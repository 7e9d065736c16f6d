"""What a pickle of NumPy arrays says of them: strings, dtypes and arrays as descriptions, and an array's numbers."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import ByteArray, RawFile, Shape

_MOST_AXES = 32

#: Bytes of a name.
_MOST_NAME = 1 << 10

#: What Python's repr of bytes writes; `codecs.escape_decode` takes more. Possessive: it keeps no way back.
_ESCAPED = re.compile(rb"(?:[^\\]++|\\[\\'\"nrt]|\\x[0-9a-fA-F]{2})*+")

#: An escape in raw-unicode-escape that is no byte.
_WIDE = re.compile(rb"\\U|\\u(?!00)")

#: The highest first byte, in UTF-8, of a character that is a byte in Latin-1.
_LATIN_1 = 0xC3


class Span(NamedTuple):
    """A string in the file. coding: "bytes", "utf-8", "escaped" (with its quotes) or "raw-unicode".

    is_bytes: whether `_codecs.encode` has made bytes, in Latin-1, of its characters.
    """

    start: int
    size: int
    coding: str
    is_bytes: bool = False


class Global(NamedTuple):
    """One of the names that NumPy's arrays need."""

    name: str


#: {(module, name): what it is}: all that a pickle may name.
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
    """text: as "f4"; order: "<" or ">" once its state is known."""

    text: str
    order: str = ""

    def build(self, file: RawFile, state: tuple[Any, ...]) -> None:
        """(3, "<", None, None, None, -1, -1, 0): no fields, no metadata. SnapshotError for another."""
        plain = len(state) == 8 and state[0] == 3 and state[2:] == (None, None, None, -1, -1, 0)
        order = text(file, state[1]) if plain else ""
        if self.order or order not in ("<", ">") + ("|",) * self.text.endswith("1"):
            raise SnapshotError(f"{file.path}: wanted a dtype of numbers, received another state of {self.text!r}")
        self.order = order


@dataclass(slots=True)
class PickledArray:
    """data: None until its state is known."""

    shape: Shape = ()
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype("f4"))
    order: str = "C"
    data: Span | None = None

    def build(self, file: RawFile, state: tuple[Any, ...]) -> None:
        """(1, shape, dtype, whether in Fortran's order, bytes). SnapshotError for another, and for a second one."""
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

    def read(self, file: RawFile, name: str) -> NDArray[Any]:
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


def called(file: RawFile, what: Global, given: tuple[Any, ...]) -> Span | PickledDType | PickledArray | None:
    """Describes what a call in the pickle would make. None for a call that NumPy does not write."""
    if what.name == "_reconstruct" and len(given) == 3 and given[:2] == (GLOBALS["numpy", "ndarray"], (0,)):
        return PickledArray()
    if what.name == "dtype" and len(given) == 3 and isinstance(given[0], Span):
        name = text(file, given[0])
        return PickledDType(name) if re.fullmatch(r"f[248]|[iu][1248]|b1", name) else None
    if what.name == "encode" and len(given) == 2 and all(isinstance(one, Span) for one in given):
        source, coding = given
        if source.coding in ("utf-8", "raw-unicode") and text(file, coding) == "latin1":
            return Span(source.start, source.size, source.coding, is_bytes=True)
    if what.name == "bytes" and not given:  # how Python 3 writes none of them for Python 2
        return Span(0, 0, "bytes")
    return None


def text(file: RawFile, span: Any) -> str:
    """A name. Python 2's strings are Latin-1. SnapshotError for what is no string, and for a long one."""
    if not isinstance(span, Span) or span.size > _MOST_NAME:
        raise SnapshotError(f"{file.path}: wanted a name of at most {_MOST_NAME} bytes, received another value")
    data = bytes(file.read("a name", span.start, span.size))
    try:
        if span.coding == "utf-8":
            return data.decode("utf-8")
        if span.coding == "raw-unicode":
            found = data.decode("raw-unicode-escape")
            found.encode()  # it may hold halves of characters
            return found
        return (_unescaped(data) if span.coding == "escaped" else data).decode("latin-1")
    except ValueError as error:
        raise SnapshotError(f"{file.path}: wanted a name, received {data!r}: {error}") from error


def _data(file: RawFile, span: Span) -> bytes | ByteArray:
    """A string's bytes. Copies that are made on the way are dropped. ValueError for a text that is no bytes."""
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
    """The characters. ValueError for one beyond Latin-1, with which each would take two or four bytes of memory."""
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


def _is_extent(value: Any) -> bool:
    return type(value) is int and value >= 0
