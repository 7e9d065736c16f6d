"""The members of a group of an HDF5 file that is not trusted: a B-tree of lists that point into a heap of names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from singa_lite.snapshots.readers.hdf5 import messages
from singa_lite.snapshots.readers.hdf5.claimed_bytes import ClaimedBytes
from singa_lite.snapshots.readers.hdf5.objects import Object

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
