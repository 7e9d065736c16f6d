"""Groups and datasets of an HDF5 file that is not trusted: what lies at an address, and the texts of attributes.

Functions over `ClaimedBytes`. What h5py does not write by default is a ValueError that says so.
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
