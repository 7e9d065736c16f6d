"""The .desc beside a native snapshot of SINGA: a text with a line for each array.

Before them, since 1.1.0, a line with the version, "1101" or "SINGA VERSION: 1200". A line of an array is
"parameter name: <name>\\tdata type: <number>\\tdim: <axes>\\tshape: <extent> <extent>".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers.raw import RawFile
from singa_lite.snapshots.readers.tensor_proto import Proto
from singa_lite.tensor import Shape

_VERSION = re.compile(r"(SINGA[ _]VERSION:\s*)?\d{1,9}\s*")
_ARRAY = re.compile(r"parameter name: (.+)\tdata type: (\d)\tdim: (\d{1,2})\tshape:((?: \d{1,10})*)\s*")

#: The numbers of the types, as in `readers.tensor_proto`.
_KINDS = {"0": "float32", "2": "int32", "4": "float64"}

#: Bytes that Python holds of a line, about.
_LINE = 1 << 10


class Described(NamedTuple):
    """Shape and dtype of an array in a line."""

    shape: Shape
    dtype: str


def parse(file: RawFile) -> dict[str, Described]:
    """The arrays by name. SnapshotError for any other line, for a name twice, and for a cut last line."""
    data = bytes(file.read("the text", 0, file.size))
    file.allow("the text", 4 * file.size + _LINE * data.count(b"\n"))
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise SnapshotError(f"{file.path}: wanted a text in UTF-8: {error}") from error
    if lines.pop():
        raise SnapshotError(f"{file.path}: wanted a line feed at the end, received a cut line")
    found: dict[str, Described] = {}
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
        found[name] = Described(shape, _KINDS[kind])
    return found


def check(where: str, described: Mapping[str, Described], protos: Mapping[str, Proto]) -> None:
    """SnapshotError unless text and records have the same arrays. where: the file with the records."""
    for name, (shape, dtype) in described.items():
        if name == "SINGA_VERSION":
            continue
        if name not in protos:
            raise SnapshotError(f"{where}: wanted the entry {name!r} of the .desc, received none of that name")
        received = protos[name].shape, protos[name].dtype.name
        if received != (shape, dtype):
            raise SnapshotError(f"{where}: entry {name!r}: wanted {shape} {dtype} as in the .desc, received {received}")
    extra = protos.keys() - described.keys()
    if extra:
        raise SnapshotError(f"{where}: received the entry {min(extra)!r}, of which the .desc does not tell")
