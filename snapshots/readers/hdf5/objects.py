"""Objects of an HDF5 file that is not trusted: groups with their members, datasets, and the texts of attributes.

Functions over `ClaimedBytes`. What h5py does not write by default is a ValueError that says so. The members of a group
are a B-tree of lists that point into a heap of names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

from singa_lite.common.array_types import DType
from singa_lite.snapshots.readers.hdf5 import messages
from singa_lite.snapshots.readers.hdf5.claimed_bytes import ClaimedBytes
from singa_lite.snapshots.readers.raw import Shape

_MAGIC = b"\x89HDF\r\n\x1a\n"

#: Attributes of one group or dataset; files of this package have three.
_ATTRIBUTES = 64

#: Bytes of a text in an attribute.
_TEXT = 2**16

_REFUSED = {
    messages.EXTERNAL: "wanted a dataset stored in this file, received one in other files",
    messages.FILTERS: "wanted a dataset stored as it is, received a compressed one",
    messages.LINK: "wanted a group without links of other kinds, received a link",
    messages.LINK_INFO: "wanted a group of the kind of h5py's libver='earliest', received one that may hold any link",
    messages.MANY_ATTRIBUTES: f"wanted at most {_ATTRIBUTES} attributes",
}


class Dataset(NamedTuple):
    """A dataset: shape, dtype and the address of its bytes."""

    shape: Shape
    dtype: DType
    address: int

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize


class Object(NamedTuple):
    """A group (symbols: addresses of its tree and heap) or a dataset, with attributes not yet made."""

    attributes: dict[str, messages.Attribute]
    symbols: tuple[int, int] | None
    dataset: Dataset | None


def root_of(data: ClaimedBytes) -> int:
    """The address of the root group."""
    if data.length < 96:
        raise ValueError(f"a file of {data.length} bytes")
    block = data.take(0, 96, _MAGIC)
    if block[8] != 0:
        raise ValueError(f"superblock version {block[8]}, of which 0 is read (h5py's libver='earliest')")
    widths, base, end, driver, root = messages.unpack("13xH9xQ8xQQ8xQ", block)
    if widths != 0x0808 or base != 0 or driver != messages.NOWHERE:
        raise ValueError("a superblock with odd sizes, an offset or a driver")
    if end > data.length:
        raise ValueError(f"{end} bytes were written, {data.length} are there")
    return int(root)


def object_at(data: ClaimedBytes, address: int) -> Object:
    """The group or dataset whose header lies there. ValueError for others, and for messages that are refused."""
    found: dict[int, bytes] = {}
    attributes: dict[str, messages.Attribute] = {}
    for message in _messages(data, address):
        if message.kind == messages.ATTRIBUTE:
            attribute = messages.attribute(message.data)
            if attribute.name in attributes or len(attributes) == _ATTRIBUTES:
                raise ValueError(f"attribute {attribute.name!r} again, or more than {_ATTRIBUTES} attributes")
            attributes[attribute.name] = attribute
        elif message.kind in _REFUSED:
            raise ValueError(_REFUSED[message.kind])
        elif message.kind not in messages.IGNORED:
            if message.kind in found:
                raise ValueError(f"two messages of kind {message.kind}")
            found[message.kind] = message.data
    if set(found) == {messages.SYMBOLS}:
        tree, heap = messages.unpack("QQ", found[messages.SYMBOLS])
        return Object(attributes, (tree, heap), None)
    if set(found) == {messages.DATASPACE, messages.DATATYPE, messages.LAYOUT}:
        return Object(attributes, None, _dataset(data, found))
    raise ValueError(f"wanted a dataset stored in this file, or a group; received messages {sorted(found)}")


def _messages(data: ClaimedBytes, address: int) -> Iterator[messages.Message]:
    """All messages of an object's header, with its continuations."""
    version, size = messages.unpack("B7xI", data.peek(address, 16))
    if version != 1:  # newer ones begin with "OHDR"
        raise ValueError("wanted an object's header of version 1 (h5py's libver='earliest')")
    blocks = [data.take(address, 16 + size)[16:]]
    while blocks:
        for message in messages.in_block(blocks.pop()):
            if message.kind == messages.CONTINUATION:
                blocks.append(data.take(*messages.unpack("QQ", message.data)))
            else:
                yield message


def _dataset(data: ClaimedBytes, found: Mapping[int, bytes]) -> Dataset:
    """A dataset by its messages. ValueError unless it has the bytes that its shape needs, for itself alone."""
    address, length = messages.contiguous(found[messages.LAYOUT])
    dataset = Dataset(
        messages.shape(found[messages.DATASPACE]),
        messages.dtype(found[messages.DATATYPE]),
        address,
    )
    if prod(size for size in dataset.shape if size) * dataset.dtype.itemsize >= 2**62:
        raise ValueError(f"shape {dataset.shape} of {dataset.dtype}")
    if dataset.nbytes == 0:
        return dataset._replace(address=0)
    there = 0 if address == messages.NOWHERE else length
    if there != dataset.nbytes:
        raise ValueError(f"{dataset.shape} of {dataset.dtype} wants {dataset.nbytes} bytes, stored are {there}")
    data.claim(address, length)
    return dataset


def text_at(data: ClaimedBytes, length: int, address: int, index: int) -> bytes:
    """A text in a heap of texts, whose length, heap and number in it an attribute says."""
    if length > _TEXT:
        raise ValueError(f"a text of {length} bytes, of which {_TEXT} are read")
    if length == 0:
        return b""
    head = data.peek(address, 16)
    if head[:5] != b"GCOL\1":
        raise ValueError("wanted a heap of texts")
    at, end = address + 16, address + int(messages.unpack("8xQ", head)[0])
    for _ in range(2**16):  # there are no more numbers
        if at + 16 > end:
            break
        number, size = messages.unpack("H6xQ", data.peek(at, 16))
        if number == index and length <= size:
            return data.peek(at + 16, length)
        if number == 0:
            break
        at += 16 + -(-size // 8) * 8
    raise ValueError(f"wanted text {index} of a heap")


#: Bytes of the name of a group or a dataset.
_NAME = 2**20


class Symbol(NamedTuple):
    """A member of a group."""

    name: str
    address: int
    is_link: bool


def members(data: ClaimedBytes, group: Object) -> Iterator[Symbol]:
    """The members of a group. ValueError for a name twice, one that no path can have, and for names that overlap."""
    if group.symbols is None:
        raise ValueError("wanted a group")
    tree, heap = group.symbols
    names = _names(data, heap)
    left = len(names)  # each byte is of one name: else one long name could be read from each of its bytes on
    seen: set[str] = set()
    for name_at, address, kind in _rows(data, tree):
        raw = _name(names, name_at, left)
        left -= len(raw) + 1
        name = raw.decode()
        if not name or "/" in name or name == "." or name in seen:
            raise ValueError(f"the name {name!r}, again or not a name")
        seen.add(name)
        yield Symbol(name, address, is_link=kind == 2)


def _rows(data: ClaimedBytes, tree: int) -> Iterator[tuple[int, int, int]]:
    """For each member of a group: where its name is, where its object is, and its kind."""
    total = 0
    for node in _leaves(data, tree):
        (count,) = messages.unpack("6xH", data.peek(node, 8))
        total += count
        data.expect(total)  # an object each
        table = data.take(node, 8 + 40 * count, b"SNOD\1")
        for at in range(8, len(table), 40):
            name_at, address, kind = messages.unpack("QQI", table, at)
            yield name_at, address, kind


def _names(data: ClaimedBytes, address: int) -> bytes:
    """The names of a group's members, each with a NUL behind it."""
    length, start = messages.unpack("8xQ8xQ", data.take(address, 32, b"HEAP\0"))
    return data.take(start, length)


def _name(names: bytes, at: int, left: int) -> bytes:
    """The name that begins there. left: bytes of names that no member has taken yet."""
    end = names.index(b"\0", at)
    if end - at > _NAME:
        raise ValueError(f"a name of {end - at} bytes, of which {_NAME} are read")
    if end - at >= left:
        raise ValueError(f"names that overlap, of more than the {len(names)} bytes that are there for them")
    return names[at:end]


def _leaves(data: ClaimedBytes, address: int) -> Iterator[int]:
    """The addresses of the lists that a B-tree of a group leads to."""
    left: list[tuple[int, int | None]] = [(address, None)]
    while left:
        node, wanted = left.pop()
        level, count = messages.unpack("5xBH", data.peek(node, 8))
        if wanted is not None and level != wanted:
            raise ValueError(f"a tree whose level {level} should be {wanted}")
        entries = data.take(node, 24 + 16 * count, b"TREE\0")
        children = [child for at in range(32, len(entries), 16) for child in messages.unpack("Q", entries, at)]
        if level == 0:
            yield from children
        else:
            left += [(child, level - 1) for child in reversed(children)]
