"""What is in a member of a zip archive that nobody vouches for: its first bytes, or all of them, verified."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from singa_lite.errors import SnapshotError
from singa_lite.snapshots.readers.raw import Bytes, Stored
from singa_lite.snapshots.readers.zip_directory import REPACK, STORED, Member

#: Bytes that are read at once to be inflated, and that come of it at once.
_PIECE = 1 << 20


def head(stored: Stored, member: Member, count: int) -> bytes:
    """The first bytes of a member, at most so many, not verified."""
    what = f"member {member.name!r}"
    if member.method == STORED:
        return bytes(stored.read(what, member.start, min(count, member.size)))
    packed = bytes(stored.read(what, member.start, min(member.packed, 2 * count + 64)))
    return _decompressed(stored, what, zlib.decompressobj(-zlib.MAX_WBITS), packed, count)


def read(stored: Stored, member: Member) -> Bytes:
    """All bytes of a member. SnapshotError unless they are as many as it says, of its CRC-32."""
    what = f"member {member.name!r}"
    stored.allow_arrays(what, member.size, REPACK)
    plain = member.method == STORED
    data = stored.read(what, member.start, member.size) if plain else _inflated(stored, what, member)
    crc = zlib.crc32(data.data)
    if crc != member.crc:
        raise SnapshotError(f"{stored.path}: {what} is damaged: wanted CRC-32 {member.crc:08x}, received {crc:08x}")
    return data


def _inflated(stored: Stored, what: str, member: Member) -> Bytes:
    data = np.empty(member.size, np.uint8)
    at = 0
    for piece in _pieces(stored, what, member):
        if at + len(piece) > member.size:
            raise _wrong(stored, what, member)
        data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    if at != member.size:
        raise _wrong(stored, what, member)
    return data


def _pieces(stored: Stored, what: str, member: Member) -> Iterator[bytes]:
    """Inflates a member piece by piece. SnapshotError unless the stream ends with the member's last packed byte.

    Bytes may still come of what zlib has taken already, so it is asked until it has come to its end.
    """
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    place, stop, left = member.start, member.start + member.packed, b""
    while not inflater.eof:
        if not left:
            left = bytes(stored.read(what, place, min(_PIECE, stop - place)))
            place += len(left)
        was_given = bool(left)
        piece = _decompressed(stored, what, inflater, left, _PIECE)
        left = inflater.unconsumed_tail
        if not piece and not was_given:
            break
        yield piece
    if not inflater.eof or inflater.unused_data or left or place < stop:
        raise _wrong(stored, what, member)


def _decompressed(stored: Stored, what: str, inflater: zlib._Decompress, packed: bytes, most: int) -> bytes:
    try:
        return inflater.decompress(packed, most)
    except zlib.error as error:
        raise SnapshotError(f"{stored.path}: {what}: wanted deflated bytes, received {error}") from error


def _wrong(stored: Stored, what: str, member: Member) -> SnapshotError:
    return SnapshotError(f"{stored.path}: {what}: wanted {member.size} deflated bytes, received another number")
