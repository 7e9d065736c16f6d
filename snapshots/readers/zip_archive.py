"""The members of a zip archive that may be hostile, read by `zipfile` behind checks of its whole directory.

Only the plainest archives are read: the members lie one behind the other from the first byte, then the directory, then
the end record, with no comment; each local header has the name and sizes of the directory. So every byte belongs to one
member or record, and all readers of zip archives find the same members. (PKWARE APPNOTE 6.3.10, sections 4.3 to 4.5.)

The head of a .npy file, NumPy's format of one array, as `numpy.save` writes it for plain numbers (numpy.lib.format,
version 1.0), is b"\\x93NUMPY\\x01\\x00", two bytes with the length of a text, and the text: "{'descr': '<f4',
'fortran_order': False, 'shape': (2, 3), }", spaces, a line feed; the array's bytes follow. NumPy evaluates the text.
Here it must match what `numpy.save` writes; anything else is refused.
"""

from __future__ import annotations

import re
import struct
import zlib
from math import prod
from typing import IO, NamedTuple, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import ByteArray, RawFile, Shape

_END = struct.Struct("<4s4H2LH")
_LOCAL = struct.Struct("<4s5H3L2H")
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF

#: Flags that change nothing: how hard the writer tried (1, 2), and that names are UTF-8 (11).
_FLAGS = 0b110 | 1 << 11

#: Bytes that Python holds of a member, about.
_MEMBER = 1 << 10

#: Bytes that are inflated at once.
_PIECE = 1 << 20

#: A hint for errors, where a member unpacks to much more than its bytes in the archive, as zeros do.
REPACK = "written without compression (numpy.savez, zip -0) it is read"


class Member(NamedTuple):
    """A file of the archive. size: its bytes; start: of its first byte in the archive."""

    archive: ZipFile
    info: ZipInfo
    start: int

    @property
    def name(self) -> str:
        """Its path."""
        return self.info.filename

    @property
    def size(self) -> int:
        """Its bytes, unpacked."""
        return self.info.file_size

    @property
    def is_stored(self) -> bool:
        """Whether it is not packed."""
        return self.info.compress_type == ZIP_STORED


class _Stream:
    """A `RawFile` as `zipfile` wants it."""

    def __init__(self, file: RawFile) -> None:
        self._file, self._at = file, 0
        self.seekable, self.tell = lambda: True, lambda: self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a byte. OSError for one before the first."""
        at = offset + (0, self._at, self._file.size)[whence]
        if at < 0:
            raise OSError(f"byte {at} of a file")
        self._at = at
        return at

    def read(self, count: int = -1) -> bytes:
        """At most so many bytes, as many as there are. SnapshotError for a list of too many members."""
        left = max(0, self._file.size - self._at)
        data = bytes(self._file.read("the archive", self._at, left if count < 0 else min(count, left)))
        self._file.allow("the list of members", cost(data.count(b"PK\1\2")))  # of each `zipfile` makes an object next
        self._at += len(data)
        return data


def cost(count: int) -> int:
    """Bytes that so many members take in memory, about, without what they hold."""
    return _MEMBER * count


def members(file: RawFile) -> dict[str, Member]:
    """All members by name. SnapshotError for an archive that is laid out otherwise, or would unpack too large."""
    count, begin = _checked_end(file)
    try:
        archive = ZipFile(cast("IO[bytes]", _Stream(file)))
    except SnapshotError:
        raise
    except Exception as error:  # BadZipFile, UnicodeDecodeError, struct.error, OSError, ...
        raise SnapshotError(f"{file.path}: wanted a list of members, received {str(error) or repr(error)}") from error
    found: dict[str, Member] = {}
    here = 0
    for info in archive.infolist():
        member = Member(archive, info, _checked_start(file, info, here))
        if member.name in found:
            raise SnapshotError(f"{file.path}: wanted one member {member.name!r}, received two")
        found[member.name] = member
        here = member.start + info.compress_size
    if here != archive.start_dir or count not in (len(found), _MAX16) or begin not in (here, _MAX32):
        raise SnapshotError(f"{file.path}: wanted {count} members and no other bytes, received {len(found)} and some")
    file.allow_arrays("the members unpacked", sum(member.size for member in found.values()), REPACK)
    return found


def _checked_end(file: RawFile) -> tuple[int, int]:
    """(number of members, where their list begins), as the end record says. SnapshotError unless it ends the file."""
    end = bytes(file.read("the end record", file.size - _END.size, _END.size))
    mark, here, there, count, total, _, begin, comment = _END.unpack(end)
    if mark != b"PK\5\6" or here or there or count != total or comment:
        raise SnapshotError(f"{file.path}: the end record: wanted one archive without a comment, received {end!r}")
    return int(count), int(begin)


def _checked_start(file: RawFile, info: ZipInfo, here: int) -> int:
    """Where a member's bytes begin. SnapshotError unless its local header is at `here` and says what the list says."""
    what, name = f"member {info.orig_filename!r:.100}", info.orig_filename
    if info.header_offset != here:
        raise SnapshotError(f"{file.path}: {what}: wanted it to begin at {here}, received {info.header_offset}")
    parts = name.split("/")
    is_other = info.filename != name or info.comment or info.volume  # an extra field can name it otherwise
    if is_other or {"", ".", ".."} & set(parts) or "\\" in name or min(name) < " " or parts[0][1:2] == ":":
        raise SnapshotError(f"{file.path}: {what}: wanted members with plain names, on one disk, without comments")
    local = _LOCAL.unpack(bytes(file.read(what, here, _LOCAL.size)))
    mark, _, flags, method, _, _, crc, packed, size, names, extras = local
    extra = bytes(file.read(what, here + _LOCAL.size + names, extras))
    if (size, packed) == (_MAX32, _MAX32) and extra[:4] == struct.pack("<2H", 1, 16) and len(extra) >= 20:
        size, packed = struct.unpack_from("<2Q", extra, 4)
    wanted = info.flag_bits, info.compress_type, info.CRC, info.compress_size, info.file_size
    if mark != b"PK\3\4" or (flags, method, crc, packed, size) != wanted:
        raise SnapshotError(f"{file.path}: {what}: wanted a header of {wanted}, received {local}")
    if flags & ~_FLAGS or method not in (ZIP_STORED, ZIP_DEFLATED) or (method == ZIP_STORED and packed != size):
        raise SnapshotError(f"{file.path}: {what}: wanted it plain, stored or deflated, received {wanted}")
    if bytes(file.read(what, here + _LOCAL.size, names)) != name.encode("utf-8" if flags & 1 << 11 else "cp437"):
        raise SnapshotError(f"{file.path}: {what}: wanted a header of the same name, received another")
    return here + _LOCAL.size + int(names) + int(extras)


def head(file: RawFile, member: Member, count: int) -> bytes:
    """The first bytes of a member, at most `count`, not verified."""
    if member.is_stored:
        return bytes(file.read(f"member {member.name!r}", member.start, min(count, member.size)))
    return bytes(_inflated(file, member, min(count, member.size)))


def read(file: RawFile, member: Member) -> ByteArray:
    """All bytes of a member. SnapshotError unless their number and CRC-32 are those in the directory."""
    what = f"member {member.name!r}"
    file.allow_arrays(what, member.size, REPACK)
    data = file.read(what, member.start, member.size) if member.is_stored else _inflated(file, member, member.size)
    crc = zlib.crc32(data.data)
    if crc != member.info.CRC:
        raise SnapshotError(f"{file.path}: {what} is damaged: wanted CRC-32 {member.info.CRC:08x}, received {crc:08x}")
    return data


def _inflated(file: RawFile, member: Member, count: int) -> ByteArray:
    """The first bytes of a deflated member, unpacked piece by piece."""
    data, at = np.empty(count, np.uint8), 0
    try:
        with member.archive.open(member.info) as stream:
            while at < count and (piece := stream.read(min(_PIECE, count - at))):
                data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
                at += len(piece)
    except (BadZipFile, EOFError, zlib.error) as error:
        raise SnapshotError(
            f"{file.path}: member {member.name!r}: wanted deflated bytes, received {error!r}"
        ) from error
    if at != count:
        raise SnapshotError(f"{file.path}: member {member.name!r}: wanted {count} deflated bytes, received {at}")
    return data


#: Bytes of a .npy file's beginning that are looked at: more than the head of a plain array has.
_MOST_HEAD = 1 << 11

_MAGIC = b"\x93NUMPY\x01\x00"

_TEXT = re.compile(
    rb"\{'descr': '([<>|](?:b1|[iu][1248]|f[248]))', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,19}, ?)*(?:\d{1,19})?)\), \} *\n"
)


class NpyArray(NamedTuple):
    """An array of an archive, as the head of its .npy file says. start: of its bytes in the member."""

    file: RawFile
    member: Member
    shape: Shape
    dtype: DType
    is_fortran: bool
    start: int

    def read(self) -> Array:
        """The array, C order, in the host's byte order; perhaps a view of the archive."""
        where = f"{self.file.path}: entry {self.member.name!r}"
        data = read(self.file, self.member)[self.start :]
        data = data if self.dtype.isnative else data.copy()  # which is swapped in place
        if not self.is_fortran:
            return raw.to_array(where, data, self.dtype, self.shape)
        return np.ascontiguousarray(raw.to_array(where, data, self.dtype, self.shape[::-1]).T)


def npy_array(file: RawFile, member: Member) -> NpyArray:
    """The array in a member, whose head is read now.

    SnapshotError for another version or text, for objects and records, and unless the array fills the member.
    """
    where = f"{file.path}: entry {member.name!r}"
    data = head(file, member, _MOST_HEAD)
    start = 10 + int.from_bytes(data[8:10], "little")
    match = _TEXT.fullmatch(data[10:start])
    if not data.startswith(_MAGIC) or match is None:
        raise SnapshotError(f"{where}: wanted a .npy head of version 1.0 with plain numbers, received {data[:80]!r}")
    descr, fortran, extents = (group.decode("ascii") for group in match.groups())
    dtype = np.dtype(descr)
    shape = tuple(int(extent) for extent in extents.split(",") if extent.strip())
    if start + prod(shape) * dtype.itemsize != member.size:
        raise SnapshotError(f"{where}: wanted {shape} {dtype}, received {member.size - start} bytes")
    raw.check_shape(where, shape, dtype)
    return NpyArray(file, member, shape, dtype, fortran == "True", start)
