"""SINGA's native snapshots, of 1.0.0 to 5.x: <stem>.bin (<stem>.model in 1.0.0) and <stem>.desc. They are only read.

A .bin is records without head, end or index (src/io/binfile_writer.cc): b"sg\\x01\\x00", the key's length (8 bytes,
little-endian), the key, the value's length (8 bytes), the value, a TensorProto (`readers.tensor_proto`). There is no
checksum, and a file that was cut between two records looks whole. Its .desc, a text with a line for each array, shows
that: given a .desc, `opened` reads the .bin or .model of the same stem in the same folder, which may not be a link, and
compares them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.formats.singa.names import named
from singa_lite.snapshots.readers import raw, tensor_proto
from singa_lite.snapshots.readers.raw import RawFile
from singa_lite.snapshots.readers.tensor_proto import Proto
from singa_lite.snapshots.tree import ArraySpec, LazyArray, Tree

#: The key of the version that wrote the file, since 2.0.0. It is no parameter, and often wrong, so that it is ignored.
VERSION = "SINGA_VERSION"

_MAGIC = b"sg\x01\x00"
_LENGTH = 8

#: The longest name in bytes, longer than SINGA's; and bytes that Python holds for each array, about.
_MOST_NAME = 1 << 10
_ENTRY = 1 << 10


@contextmanager
def opened(path: str | os.PathLike[str], wanted: Tree | None) -> Iterator[Tree]:
    """A .bin, .model or .desc. wanted: the net's tree, see `names.named`.

    FileNotFoundError if there is none; SnapshotError unless it is whole, and for a .desc that has no .bin or .model
    beside it or names other arrays.
    """
    name = os.fsdecode(path)
    described = None
    if name.lower().endswith(".desc"):
        with raw.reading(name) as text:
            described = described_arrays(text)
        name = _described_file(name)
    with raw.reading(name) as file:
        protos = records(file)
        if described is not None:
            check_described(name, described, protos)
        arrays = {
            key: LazyArray(proto.shape, proto.dtype, partial(tensor_proto.read, file, f"entry {key!r}", proto))
            for key, proto in protos.items()
        }
        yield named(name, arrays, wanted)


def records(file: RawFile) -> dict[str, Proto]:
    """The arrays by key, without the version. Their numbers are not read."""
    found: dict[str, Proto] = {}
    offset = 0
    while offset < file.size:
        key, start, size = _record(file, offset)
        if key in found:
            raise SnapshotError(f"{file.path}: wanted one record {key!r}, received two")
        found[key] = tensor_proto.parse(file, f"entry {key!r}", start, size)
        file.allow("the list of records", _ENTRY * len(found))
        offset = start + size
    found.pop(VERSION, None)
    return found


def _record(file: RawFile, offset: int) -> tuple[str, int, int]:
    """(key, where the value begins, its bytes) of the record at an offset."""
    what = f"record at byte {offset}"
    magic = bytes(file.read(what, offset, len(_MAGIC)))
    if magic != _MAGIC:
        hint = "; a pickle is read as .pickle" if not offset else ""
        raise SnapshotError(f"{file.path}: {what}: wanted {_MAGIC!r}, received {magic!r}{hint}")
    length = _number(file, what, offset + len(_MAGIC))
    if not 0 < length <= _MOST_NAME:
        raise SnapshotError(f"{file.path}: {what}: wanted a key of 1 to {_MOST_NAME} bytes, received {length}")
    start = offset + len(_MAGIC) + _LENGTH
    raw_key = bytes(file.read(what, start, length))
    try:
        key = raw_key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SnapshotError(f"{file.path}: {what}: wanted a key in UTF-8, received {raw_key!r}") from error
    size = _number(file, f"entry {key!r}", start + length)
    start += length + _LENGTH
    if size > file.size - start:
        left = file.size - start
        raise SnapshotError(f"{file.path}: entry {key!r}: wanted {size} bytes, received {left} to the file's end")
    return key, start, size


def _number(file: RawFile, what: str, offset: int) -> int:
    return int.from_bytes(bytes(file.read(what, offset, _LENGTH)), "little")


def _described_file(name: str) -> str:
    """The file that a .desc describes: of the same stem, in the same folder, and no link."""
    stem = name[: -len(".desc")]
    tried = [stem + suffix for suffix in (".bin", ".model")]
    for one in tried:
        if os.path.islink(one):
            raise SnapshotError(f"{name}: wanted a file beside it, received a link, {one}")
        if os.path.exists(one):
            return one
    raise SnapshotError(f"{name}: wanted {' or '.join(tried)} beside it, which has the arrays; received neither")


_VERSION = re.compile(r"(SINGA[ _]VERSION:\s*)?\d{1,9}\s*")
_ARRAY = re.compile(r"parameter name: (.+)\tdata type: (\d)\tdim: (\d{1,2})\tshape:((?: \d{1,10})*)\s*")

#: The numbers of the types, as in `readers.tensor_proto`.
_KINDS = {"0": "float32", "2": "int32", "4": "float64"}

#: Bytes that Python holds of a line, about.
_LINE = 1 << 10


def described_arrays(file: RawFile) -> dict[str, ArraySpec]:
    """The arrays by name. SnapshotError for any other line, for a name twice, and for a cut last line."""
    data = bytes(file.read("the text", 0, file.size))
    file.allow("the text", 4 * file.size + _LINE * data.count(b"\n"))
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise SnapshotError(f"{file.path}: wanted a text in UTF-8: {error}") from error
    if lines.pop():
        raise SnapshotError(f"{file.path}: wanted a line feed at the end, received a cut line")
    found: dict[str, ArraySpec] = {}
    for number, line in enumerate(lines):
        match = _ARRAY.fullmatch(line)
        if match is None:
            if number or not _VERSION.fullmatch(line):
                raise SnapshotError(f"{file.path}: line {number + 1}: wanted an array's, received {line[:200]!r}")
            continue
        name, kind, axes, extents = match.groups()
        shape = tuple(map(int, extents.split()))
        if name in found or len(shape) != int(axes) or kind not in _KINDS:
            raise SnapshotError(f"{file.path}: line {number + 1}: wanted a new array's, received {line[:200]!r}")
        found[name] = ArraySpec(shape, np.dtype(_KINDS[kind]))
    return found


def check_described(where: str, described: Mapping[str, ArraySpec], protos: Mapping[str, Proto]) -> None:
    """SnapshotError unless text and records have the same arrays. where: the file with the records."""
    for name, (shape, dtype) in described.items():
        if name == "SINGA_VERSION":
            continue
        if name not in protos:
            raise SnapshotError(f"{where}: wanted the entry {name!r} of the .desc, received none of that name")
        received = protos[name].shape, protos[name].dtype
        if received != (shape, dtype):
            raise SnapshotError(f"{where}: entry {name!r}: wanted {shape} {dtype} as in the .desc, received {received}")
    extra = protos.keys() - described.keys()
    if extra:
        raise SnapshotError(f"{where}: received the entry {min(extra)!r}, of which the .desc does not tell")
