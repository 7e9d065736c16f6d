"""Messages in the headers of HDF5 objects: datatypes, dataspaces, layouts and attributes, as h5py writes them.

Pure functions from bytes to values. Another kind of message, and one that is too short, is a ValueError.
Sizes are those of the "HDF5 File Format Specification", version 3.0, with 8-byte offsets; all is little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.snapshots.readers.raw import Shape

#: What an attribute holds.
Value: TypeAlias = "bool | int | float | str | list[Value]"

#: The address of what is not there.
NOWHERE = 2**64 - 1

#: Messages of an object's header, by number.
DATASPACE, DATATYPE, EXTERNAL, LAYOUT, FILTERS, ATTRIBUTE, CONTINUATION, SYMBOLS = 1, 3, 7, 8, 11, 12, 16, 17
LINK_INFO, LINK, MANY_ATTRIBUTES = 2, 6, 21

#: Messages without meaning here: nothing, fill values, comments, times, and a count of links.
IGNORED = (0, 4, 5, 13, 14, 18, 22)

_RANK = 32

#: Elements of a list in an attribute: each is an object of Python's, many times as large as it is in the file.
_ELEMENTS = 1024

#: (length, address, index) of a text to its bytes.
Heap = Callable[[int, int, int], bytes]


class Message(NamedTuple):
    """A message of an object's header."""

    kind: int
    flags: int
    data: bytes


class Text(NamedTuple):
    """The type of a text: its length, or None if it lies in a heap."""

    length: int | None


def unpack(fmt: str, data: bytes, at: int = 0) -> tuple[Any, ...]:
    """As `struct.unpack_from`, little-endian; fmt says the types. ValueError if there are too few bytes."""
    try:
        return struct.unpack_from("<" + fmt, data, at)
    except struct.error as error:
        raise ValueError(f"wanted {struct.calcsize('<' + fmt)} bytes more, received {len(data) - at}") from error


def in_block(block: bytes) -> Iterator[Message]:
    """The messages of one block of an object's header of version 1."""
    at = 0
    while at < len(block):
        kind, size, flags = unpack("HHB3x", block, at)
        data = block[at + 8 : at + 8 + size]
        if len(data) < size:
            raise ValueError(f"a message of {size} bytes, of which {len(data)} are there")
        if flags & 2:
            raise ValueError("a message that is shared with other objects")
        yield Message(kind, flags, data)
        at += 8 + size


def shape(data: bytes) -> Shape:
    """The shape in a dataspace. ValueError for a dataset without data, and for one that can grow."""
    version, rank, flags = unpack("BBB", data)
    if version not in (1, 2) or rank > _RANK:
        raise ValueError(f"a dataspace of version {version} with {rank} axes")
    if version == 2 and unpack("B", data, 3)[0] == 2:
        raise ValueError("a dataset without data")
    start = 8 if version == 1 else 4
    sizes: Shape = unpack(f"{rank}Q", data, start)
    if flags & 1 and unpack(f"{rank}Q", data, start + 8 * rank) != sizes:
        raise ValueError("a dataset that can grow")
    return sizes


_CLASSES = (
    *("integers", "floats", "times", "text", "bits", "opaque bytes"),
    *("compounds", "references", "an enumeration", "variable lengths", "arrays"),
)


def dtype(data: bytes) -> DType:
    """The dtype of a datatype: numbers and truth values that NumPy has. ValueError for all others."""
    for wanted, code in _CODES:
        if data[: len(code)] == code and not data[len(code) :].strip(b"\0"):
            return wanted
    kind = data[0] & 15 if data else len(_CLASSES)
    raise ValueError(f"a datatype that is not read, {_CLASSES[kind] if kind < len(_CLASSES) else 'of no known class'}")


def _codes() -> Iterator[tuple[DType, bytes]]:
    """All dtypes that are read, with their encoding."""
    for sign, big in ((">", 1), ("<", 0)):
        for size in (1, 2, 4, 8):
            for letter, signed in (("i", 8), ("u", 0)):
                integer = struct.pack("<BBHIHH", 0x10, signed | big, 0, size, 0, 8 * size)
                yield np.dtype(f"{sign}{letter}{size}"), integer
        for size, exponent, mantissa in ((2, 5, 10), (4, 8, 23), (8, 11, 52)):
            head = struct.pack("<BBBBI", 0x11, 0x20 | big, 8 * size - 1, 0, size)
            fields = struct.pack("<HHBBBBI", 0, 8 * size, mantissa, exponent, 0, mantissa, 2 ** (exponent - 1) - 1)
            yield np.dtype(f"{sign}f{size}"), head + fields
    yield np.dtype("V2"), struct.pack("<BBHI", 0x15, 0, 0, 2)  # opaque: Keras's bfloat16, which HDF5 has not
    names = b"FALSE\0\0\0TRUE\0\0\0\0\0\1"
    for base in (8, 9):  # h5py's truth values: an enumeration of 1-byte integers, of either byte order
        yield (
            np.dtype("?"),
            struct.pack("<BHBI", 0x18, 2, 0, 1) + struct.pack("<BBHIHH", 0x10, base, 0, 1, 0, 8) + names,
        )


_CODES = tuple(_codes())


def contiguous(data: bytes) -> tuple[int, int]:
    """Address and length of a dataset's bytes in the file. ValueError for one that is stored in another way."""
    version, kind = unpack("BB", data)
    if version not in (3, 4) or kind != 1:
        kinds = {0: "in its header", 2: "in chunks", 3: "in other datasets (a virtual one)"}
        raise ValueError(f"a dataset stored {kinds.get(kind, '?')}, layout version {version}; wanted it in one piece")
    address, length = unpack("QQ", data, 2)
    return address, length


class Attribute(NamedTuple):
    """An attribute as bytes, of which `value` makes its value."""

    name: str
    type: bytes
    space: bytes
    data: bytes

    def value(self, heap: Heap) -> Value:
        """A number, a truth value, a text, or a list of them. heap: gives a text that lies elsewhere.

        ValueError for other types, for more than the attribute's own bytes hold, for long lists, and for a list of
        texts elsewhere, which could be one long text many times.
        """
        element = _text(self.type) or dtype(self.type)
        sizes = shape(self.space)
        size = element.itemsize if isinstance(element, np.dtype) else 16 if element.length is None else element.length
        count = prod(sizes)
        if len(sizes) > 1 or count * size > len(self.data) or (sizes and element == Text(None)):
            raise ValueError(f"an attribute of shape {sizes} in {len(self.data)} bytes")
        if count > _ELEMENTS:
            raise ValueError(f"a list of {count} elements, of which {_ELEMENTS} are read")
        pieces = [self.data[size * i : size * (i + 1)] for i in range(count)]
        values = [_value(element, piece, heap) for piece in pieces]
        return values if sizes else values[0]


def _value(element: Text | DType, data: bytes, heap: Heap) -> Value:
    if isinstance(element, np.dtype):
        if element.kind == "b" and data not in (b"\0", b"\1"):
            raise ValueError(f"a truth value of {data!r}")
        number: bool | int | float = np.frombuffer(data, element)[0].item()
        return number
    text = heap(*unpack("IQI", data)) if element.length is None else data.rstrip(b"\0")
    return text.decode()


def _text(data: bytes) -> Text | None:
    """The type of texts: of a fixed length, or "variable" ones."""
    code, flags, length = unpack("BB2xI", data)
    if code == 0x13 and length > 0:
        return Text(length)
    return Text(None) if code == 0x19 and flags & 15 == 1 else None


def attribute(data: bytes) -> Attribute:
    """The attribute in a message. ValueError for name, type or shape that go beyond its bytes."""
    version, flags, name_size, type_size, space_size = unpack("BBHHH", data)
    if version not in (1, 2, 3) or (version > 1 and flags):
        raise ValueError(f"an attribute of version {version}, flags {flags}")
    at, pieces = (9 if version == 3 else 8), []
    for size in (name_size, type_size, space_size):
        pieces.append(data[at : at + size])
        at += -(-size // 8) * 8 if version == 1 else size
    if at > len(data):
        raise ValueError(f"an attribute of {at} bytes in {len(data)}")
    name = pieces[0].rstrip(b"\0").decode()
    return Attribute(name, pieces[1], pieces[2], data[at:])
