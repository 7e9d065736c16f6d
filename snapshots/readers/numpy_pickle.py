"""A dictionary of NumPy's arrays in a pickle, read by Python's own `pickle` without making what the file names.

`pickle._Unpickler`, the reader in Python, runs with the opcodes of such a dictionary alone, and finds six names, each
of which stands for a description made here. It holds strings of the file and small objects, whose number is bounded,
and knows strings of Python 2. `pickle.Unpickler`, in C, takes gigabytes for a few bytes (LONG_BINPUT of a high number),
which a child process could bound on Linux alone, for half a second to start it.
"""

from __future__ import annotations

import codecs
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import RawFile, Shape

#: Opcodes of a file at most, about: an array takes 40, and a small object, of 80 bytes, as few as one.
_MOST_OPCODES = 3 << 17
_MOST_AXES = 32
#: Characters of a name.
_MOST_NAME = 1 << 10
#: The highest first byte in UTF-8 of a character of Latin-1; and an escape, in raw-unicode-escape, of one beyond.
_LATIN_1, _WIDE = 0xC3, re.compile(rb"\\U|\\u(?!00)")


class _Name(Enum):
    """What a pickle may name."""

    ARRAY, NDARRAY, DTYPE, ENCODE, BYTES = range(5)


_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _Name.ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _Name.ARRAY,
    ("numpy", "ndarray"): _Name.NDARRAY,
    ("numpy", "dtype"): _Name.DTYPE,
    ("_codecs", "encode"): _Name.ENCODE,
    ("__builtin__", "bytes"): _Name.BYTES,
}


@dataclass(slots=True)
class _PickledDType:
    """A dtype. code: as "f4"; order: "<", ">" or "|", which its state sets."""

    code: str
    order: str = ""


@dataclass(slots=True)
class PickledArray:
    """An array, whose state sets all of it; until then data is None."""

    shape: Shape = ()
    dtype: DType = field(default_factory=lambda: np.dtype("f4"))
    is_fortran: bool = False
    data: bytes | None = None

    def read(self, where: str) -> Array:
        """The numbers, C order, in the host's byte order, where possible as a view."""
        flat = np.frombuffer(self.data or b"", np.uint8)
        flat = flat if self.dtype.isnative else flat.copy()  # which is swapped in place
        if self.is_fortran:
            return np.ascontiguousarray(raw.to_array(where, flat, self.dtype, self.shape[::-1]).T)
        return raw.to_array(where, flat, self.dtype, self.shape)


class _Entries(dict[str, object]):
    """The dictionary of a pickle. ValueError for a key that is no name, and for one that comes twice."""

    __slots__ = ()

    def __setitem__(self, key: object, value: object) -> None:
        name = _text(key)
        if len(name) > _MOST_NAME:
            raise ValueError(f"a name of {len(name)} characters")
        name.encode()  # ValueError for half a surrogate pair
        if name in self:
            raise ValueError(f"the entry {name!r} twice")
        super().__setitem__(name, value)


class _Source:
    """A file for `pickle`: ValueError, before memory is taken, beyond its end and after too many reads."""

    def __init__(self, file: RawFile) -> None:
        self._file, self._size, self._left = file.buffered(), file.size, _MOST_OPCODES
        self.tell = self._file.tell

    def read(self, count: int) -> bytes:
        """So many bytes."""
        self._left -= count == 1  # an opcode, or a short argument of one
        if self._left < 0:
            raise ValueError(f"more than {_MOST_OPCODES} opcodes")
        self.check(count)
        return self._file.read(count)

    def check(self, count: int) -> None:
        """ValueError unless so many bytes are left."""
        if count > self._size - self.tell():
            raise ValueError(f"the file's end where {count} more bytes should be")

    def readline(self) -> bytes:
        """A line with its end."""
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise ValueError("the file's end in a line")
        return line


class _Reader(pickle._Unpickler):
    """Reads a dictionary of arrays. Whatever a wrong file raises is for the caller to catch."""

    stack: list[Any]
    metastack: list[list[Any]]
    read: Callable[[int], bytes]
    readline: Callable[[], bytes]

    def __init__(self, source: _Source, size: int) -> None:
        super().__init__(source, encoding="bytes")
        self._source, self._encodable = source, size

    def find_class(self, module: str, name: str, /) -> _Name:
        """What stands for a name. ValueError for any other."""
        found = _NAMES.get((module, name))
        if found is None:
            raise ValueError(f"the name {module[:100]}.{name[:100]}, which no array needs")
        return found

    def load_frame(self) -> None:
        """Checks the length; frames are read as what is in them."""
        self._source.check(int.from_bytes(self.read(8), "little"))

    def load_dict(self) -> None:
        """Makes a dictionary of the values above the mark."""
        items = self.pop_mark()  # type: ignore[attr-defined]
        self.stack.append(_Entries())
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.stack[-1][key] = value

    def load_text(self, width: int) -> None:
        """A text in UTF-8 behind its length. ValueError for characters of which each takes four bytes."""
        data = self.read(int.from_bytes(self.read(width), "little"))
        if len(data) > _MOST_NAME and int(np.frombuffer(data, np.uint8).max()) > _LATIN_1:
            raise ValueError("characters that are no bytes")
        self.stack.append(data.decode())

    def load_unicode(self) -> None:
        """A text of protocol 0, in raw-unicode-escape; as `load_text`."""
        data = self.readline()[:-1]
        if len(data) > _MOST_NAME and _WIDE.search(data):
            raise ValueError("characters that are no bytes")
        self.stack.append(codecs.raw_unicode_escape_decode(data)[0])

    def load_reduce(self) -> None:
        """Describes what a call of a name would make, as NumPy writes such calls."""
        given, called = self.stack.pop(), self.stack.pop()
        match called, given:
            case _Name.ARRAY, (_Name.NDARRAY, (0,), _):
                self.stack.append(PickledArray())
            case _Name.DTYPE, (str() | bytes() as code, _, _) if re.fullmatch(r"f[248]|[iu][1248]|b1", _text(code)):
                self.stack.append(_PickledDType(_text(code)))
            case _Name.ENCODE, (str() as text, "latin1"):
                self._encodable -= len(text)  # each text once: a short file could encode a long one many times
                if self._encodable < 0:
                    raise ValueError("more calls of encode than there are texts")
                self.stack.append(text.encode("latin-1"))
            case _Name.BYTES, ():  # how Python 3 writes b"" for Python 2
                self.stack.append(b"")
            case _:
                raise ValueError(f"a call of {_kind(called)} that NumPy does not write")

    def load_build(self) -> None:
        """Gives a dtype or an array its state, which NumPy writes as a tuple."""
        state, target = self.stack.pop(), self.stack[-1]
        match target, state:
            case _PickledDType(order=""), (3, str() | bytes() as order, None, None, None, -1, -1, 0):
                if _text(order) not in ("<", ">") + ("|",) * target.code.endswith("1"):
                    raise ValueError(f"a dtype {target.code!r} of another byte order")
                target.order = _text(order)
            case PickledArray(data=None), (1, tuple() as shape, _PickledDType() as dtype, is_fortran, bytes() as data):
                if (
                    not dtype.order
                    or len(shape) > _MOST_AXES
                    or not all(type(one) is int and one >= 0 for one in shape)
                ):
                    raise ValueError("an array of another shape or dtype")
                target.shape, target.dtype = shape, np.dtype(dtype.order + dtype.code)
                target.is_fortran, target.data = bool(is_fortran), data
                if len(data) != prod(shape) * target.dtype.itemsize:
                    raise ValueError(f"{len(data)} bytes for an array {str(shape)[:100]} of {target.dtype}")
            case _:
                raise ValueError(f"a state of {_kind(target)} that NumPy does not write")


class _Opcodes(dict[int, Any]):
    """Methods by opcode. ValueError for one that no dictionary of arrays needs."""

    def __missing__(self, key: int) -> object:
        raise ValueError(f"the opcode {bytes([key])!r}, which no array needs")


_KEPT = (
    *("PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "INT", "LONG", "BININT", "BININT1", "BININT2", "LONG1"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "SETITEM", "SETITEMS"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "GLOBAL", "STACK_GLOBAL", "MEMOIZE"),
    *("PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET"),
)
_OWN: dict[str, Callable[[_Reader], None]] = {
    "FRAME": _Reader.load_frame,
    "DICT": _Reader.load_dict,
    "EMPTY_DICT": lambda reader: reader.stack.append(_Entries()),
    "SHORT_BINUNICODE": lambda reader: reader.load_text(1),
    "BINUNICODE": lambda reader: reader.load_text(4),
    "BINUNICODE8": lambda reader: reader.load_text(8),
    "UNICODE": _Reader.load_unicode,
    "REDUCE": _Reader.load_reduce,
    "BUILD": _Reader.load_build,
}
_Reader.dispatch = _Opcodes(
    {ord(getattr(pickle, name)): pickle._Unpickler.dispatch[ord(getattr(pickle, name))] for name in _KEPT}
    | {ord(getattr(pickle, name)): method for name, method in _OWN.items()}
)


def read(file: RawFile) -> dict[str, object]:
    """The entries by name: of arrays a `PickledArray` each. SnapshotError, with the byte, for another pickle.

    All bytes of the arrays are in memory then, once.
    """
    source = _Source(file)
    try:
        reader = _Reader(source, file.size)
        found: object = reader.load()
        if reader.stack or reader.metastack:
            raise ValueError("values beside the last one")
        if not isinstance(found, _Entries) or source.tell() != file.size:
            raise ValueError(f"{_kind(found)} and {file.size - source.tell()} more bytes")
    except Exception as error:  # `pickle` raises any kind
        reason = (str(error) or repr(error))[:300]
        where = f"{file.path}: byte {source.tell()}"
        raise SnapshotError(f"{where}: wanted a dictionary of arrays as NumPy pickles it, received {reason}") from error
    return found


def _text(value: object) -> str:
    """The characters of a string, in Latin-1 if it is of Python 2. TypeError for another value."""
    if not isinstance(value, str | bytes):
        raise TypeError(f"{_kind(value)} in the place of a name")
    return value if isinstance(value, str) else value.decode("latin-1")


def _kind(value: object) -> str:
    """What a value is, for errors. The value itself may be far longer than the file: one tuple in it many times."""
    return (
        value.name.lower()
        if isinstance(value, _Name)
        else type(value).__name__.lstrip("_").removeprefix("Pickled").lower()
    )
