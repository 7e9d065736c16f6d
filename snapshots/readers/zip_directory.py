"""The members of a zip archive that may be hostile, and where they lie. Only the plainest archives are read.

The members lie one behind the other from the first byte, then the central directory, then the end record, with no
comment; each local header says what the directory says. So every byte belongs to one member or record, and all readers
of zip archives find the same members. (PKWARE APPNOTE 6.3.10, sections 4.3 to 4.5.)
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers.raw import RawFile

STORED, DEFLATED = 0, 8

_END = Struct("<4s4H2LH")
_LOCATOR = Struct("<4sLQL")
_END64 = Struct("<4sQ2H2L4Q")
_CENTRAL = Struct("<4s6H3L5H2L")
_LOCAL = Struct("<4s5H3L2H")

_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF

#: Flags that change nothing: how hard the writer tried (1, 2), and that names are UTF-8 (11).
_FLAGS = 0b110 | 1 << 11

#: Bytes that Python holds of a member, about.
_MEMBER = 1 << 10

#: A hint for errors, where a member unpacks to much more than its bytes in the archive, as zeros do.
REPACK = "written without compression (numpy.savez, zip -0) it is read"


class Member(NamedTuple):
    """A file of the archive. size: its bytes; packed: of those in the archive, from offset `start`."""

    name: str
    method: int
    crc: int
    packed: int
    size: int
    start: int


def members(file: RawFile) -> dict[str, Member]:
    """All members by name. SnapshotError for an archive that is laid out otherwise, or would unpack too large."""
    count, begin, end = _directory(file)
    file.allow("the list of members", cost(count))
    listed = bytes(file.read("the list of members", begin, end - begin))
    found: dict[str, Member] = {}
    at = here = 0
    for number in range(count):
        what = f"member {number}"
        fields, name, extra, at = _entry(file, what, listed, at)
        member = _member(file, what, fields, name, extra, here)
        if member.name in found:
            raise SnapshotError(f"{file.path}: wanted one member {member.name!r}, received two")
        found[member.name] = member
        here = member.start + member.packed
    if at != len(listed) or here != begin:
        raise SnapshotError(f"{file.path}: wanted {count} members and no other bytes, received some")
    file.allow_arrays("the members unpacked", sum(member.size for member in found.values()), REPACK)
    return found


def cost(count: int) -> int:
    """Bytes that so many members take in memory, about, without what they hold."""
    return _MEMBER * count


def _directory(file: RawFile) -> tuple[int, int, int]:
    """Number of the members; where the directory begins, and ends. SnapshotError unless the rest agrees."""
    at = file.size - _END.size
    end = _fields(file, "the end record", _END, b"PK\5\6", at)
    here, there, count, total, size, begin, comment = end
    if here or there or count != total or comment:
        raise SnapshotError(f"{file.path}: wanted one archive that ends without a comment, received {end}")
    before = at - _LOCATOR.size
    if before >= 0 and bytes(file.read("the end record", before, 4)) == b"PK\6\7":
        at, count, size, begin = _directory64(file, before, (count, size, begin))
    if begin + size != at:
        raise SnapshotError(f"{file.path}: wanted the list of members to end at {at}, received {begin} + {size}")
    return count, begin, at


def _directory64(file: RawFile, before: int, small: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """From the end record of 64 bits: where it begins, and the directory's number of members, size and offset."""
    disk, at, disks = _fields(file, "the end locator", _LOCATOR, b"PK\6\7", before)
    record = _fields(file, "the end record of 64 bits", _END64, b"PK\6\6", before - _END64.size)
    length, _, _, here, there, count, total, size, begin = record
    agree = [
        few in (many, limit)
        for few, many, limit in zip(small, (count, size, begin), (_MAX16, _MAX32, _MAX32), strict=True)
    ]
    wanted = (0, 1, before - _END64.size, _END64.size - 12, 0, 0, total)
    if (disk, disks, at, length, here, there, count) != wanted or not all(agree):
        raise SnapshotError(f"{file.path}: wanted end records that agree, received {record} and {small}")
    return at, count, size, begin


def _fields(file: RawFile, what: str, record: Struct, mark: bytes, at: int) -> tuple[int, ...]:
    """A record's numbers, without the mark that it must begin with."""
    found, *numbers = record.unpack(bytes(file.read(what, at, record.size)))
    if found != mark:
        raise SnapshotError(f"{file.path}: {what}: wanted {mark!r} at {at}, received {found!r}")
    return tuple(numbers)


def _entry(file: RawFile, what: str, listed: bytes, at: int) -> tuple[tuple[int, ...], bytes, bytes, int]:
    """Numbers, name and extra fields of a member in the directory, and where the next one is."""
    names_at = at + _CENTRAL.size
    if names_at > len(listed) or not listed.startswith(b"PK\1\2", at):
        raise SnapshotError(f"{file.path}: {what}: wanted it in the list, received {listed[at : at + 4]!r}")
    _, *fields = _CENTRAL.unpack_from(listed, at)
    extra_at = names_at + fields[9]
    end = extra_at + fields[10]
    if end > len(listed) or fields[11] or fields[12]:
        raise SnapshotError(f"{file.path}: {what}: wanted no comment and no other disk, received {fields}")
    return tuple(fields), listed[names_at:extra_at], listed[extra_at:end], end


def _member(file: RawFile, what: str, fields: tuple[int, ...], name: bytes, extra: bytes, here: int) -> Member:
    """A member of the directory. SnapshotError unless its local header is at `here` and says the same."""
    _, _, flags, method, _, _, crc, packed, size, *_, offset = fields
    what = f"{what}, {name!r}"
    size, packed, offset = _large(file, what, extra, (size, packed, offset))
    if offset != here:
        raise SnapshotError(f"{file.path}: {what}: wanted it to begin at {here}, received {offset}")
    local = _fields(file, what, _LOCAL, b"PK\3\4", offset)
    _, local_flags, local_method, _, _, local_crc, local_packed, local_size, names, extras = local
    local_name = bytes(file.read(what, offset + _LOCAL.size, names))
    local_extra = bytes(file.read(what, offset + _LOCAL.size + names, extras))
    local_size, local_packed = _large(file, what, local_extra, (local_size, local_packed))
    wanted = (name, flags, method, crc, packed, size)
    found = (local_name, local_flags, local_method, local_crc, local_packed, local_size)
    if wanted != found:
        raise SnapshotError(f"{file.path}: {what}: wanted a header of {wanted}, received {found}")
    if flags & ~_FLAGS or method not in (STORED, DEFLATED) or (method == STORED and packed != size):
        raise SnapshotError(f"{file.path}: {what}: wanted it plain, stored or deflated, received {wanted}")
    return Member(_text(file, name, flags), method, crc, packed, size, offset + _LOCAL.size + names + extras)


def _large(file: RawFile, what: str, extra: bytes, small: tuple[int, ...]) -> list[int]:
    """The numbers, where each that is 0xFFFFFFFF is replaced by one of 64 bits in the extra fields."""
    blocks: dict[int, bytes] = {}
    at = 0
    while at < len(extra):
        kind, length = int.from_bytes(extra[at : at + 2], "little"), int.from_bytes(extra[at + 2 : at + 4], "little")
        if at + 4 + length > len(extra) or kind in blocks:
            raise SnapshotError(f"{file.path}: {what}: wanted extra fields, each once, received {extra[:64]!r}")
        blocks[kind] = extra[at + 4 : at + 4 + length]
        at += 4 + length
    given = blocks.get(1, b"")
    wide = [int.from_bytes(given[i : i + 8], "little") for i in range(0, len(given), 8)]
    missing = [index for index, number in enumerate(small) if number == _MAX32]
    if len(given) != 8 * len(missing):
        raise SnapshotError(f"{file.path}: {what}: wanted {len(missing)} numbers of 64 bits, received {given[:64]!r}")
    numbers = list(small)
    for index, number in zip(missing, wide, strict=True):
        numbers[index] = number
    return numbers


def _text(file: RawFile, name: bytes, flags: int) -> str:
    try:
        text = name.decode("utf-8" if flags & 1 << 11 else "cp437")
    except UnicodeDecodeError as error:
        raise SnapshotError(f"{file.path}: wanted a name in UTF-8, received {name[:100]!r}") from error
    parts = text.split("/")
    if {"", ".", ".."} & set(parts) or "\\" in text or min(text) < " " or parts[0][1:2] == ":":
        raise SnapshotError(f"{file.path}: wanted members with plain names, received {text[:100]!r}")
    return text
