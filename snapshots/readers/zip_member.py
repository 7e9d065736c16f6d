"""Reads a member of a zip archive that may be hostile: its first bytes, or all of them, verified."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers.raw import ByteArray, RawFile
from singa_lite.snapshots.readers.zip_directory import REPACK, STORED, Member

#: Bytes that are read and inflated at once, and the most that one call inflates to.
_PIECE = 1 << 20


def head(file: RawFile, member: Member, count: int) -> bytes:
    """The first bytes of a member, at most `count`, not verified."""
    what = f"member {member.name!r}"
    if member.method == STORED:
        return bytes(file.read(what, member.start, min(count, member.size)))
    packed = bytes(file.read(what, member.start, min(member.packed, 2 * count + 64)))
    return _decompressed(file, what, zlib.decompressobj(-zlib.MAX_WBITS), packed, count)


def read(file: RawFile, member: Member) -> ByteArray:
    """All bytes of a member. SnapshotError unless their number and CRC-32 are those in the directory."""
    what = f"member {member.name!r}"
    file.allow_arrays(what, member.size, REPACK)
    plain = member.method == STORED
    data = file.read(what, member.start, member.size) if plain else _inflated(file, what, member)
    crc = zlib.crc32(data.data)
    if crc != member.crc:
        raise SnapshotError(f"{file.path}: {what} is damaged: wanted CRC-32 {member.crc:08x}, received {crc:08x}")
    return data


def _inflated(file: RawFile, what: str, member: Member) -> ByteArray:
    data = np.empty(member.size, np.uint8)
    at = 0
    for piece in _pieces(file, what, member):
        if at + len(piece) > member.size:
            raise _size_error(file, what, member)
        data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    if at != member.size:
        raise _size_error(file, what, member)
    return data


def _pieces(file: RawFile, what: str, member: Member) -> Iterator[bytes]:
    """Inflates a member piece by piece. SnapshotError unless the stream ends with the member's last packed byte.

    zlib may hold back output of input that it has consumed, so it is called until it says that the stream has ended.
    """
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    offset, stop, left = member.start, member.start + member.packed, b""
    while not inflater.eof:
        if not left:
            left = bytes(file.read(what, offset, min(_PIECE, stop - offset)))
            offset += len(left)
        was_given = bool(left)
        piece = _decompressed(file, what, inflater, left, _PIECE)
        left = inflater.unconsumed_tail
        if not piece and not was_given:
            break
        yield piece
    if not inflater.eof or inflater.unused_data or left or offset < stop:
        raise _size_error(file, what, member)


def _decompressed(file: RawFile, what: str, inflater: zlib._Decompress, packed: bytes, most: int) -> bytes:
    try:
        return inflater.decompress(packed, most)
    except zlib.error as error:
        raise SnapshotError(f"{file.path}: {what}: wanted deflated bytes, received {error}") from error


def _size_error(file: RawFile, what: str, member: Member) -> SnapshotError:
    return SnapshotError(f"{file.path}: {what}: wanted {member.size} deflated bytes, received another number")
