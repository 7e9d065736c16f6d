"""Reads the header of a GGUF file with every check that the format prescribes, and maps the bytes of its tensors.

A file is "GGUF", the version, the counts of tensors and of pairs, all little-endian; pairs of a key and a value with
its type; of each tensor its name, extents (innermost first), type and offset; a gap; the tensors, aligned.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from struct import Struct
from typing import NamedTuple

import numpy as np

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import ByteArray, Shape

MAGIC, VERSIONS, ALIGNMENT = b"GGUF", (2, 3), "general.alignment"

#: {number of a value's type: struct's letter}. TEXT and ARRAY have none.
LETTERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
BOOL, TEXT, ARRAY = 7, 8, 9

#: {number of a tensor's type: its name, elements of a block, bytes of a block}.
TYPES = {
    0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 10: ("q2_k", 256, 84), 11: ("q3_k", 256, 110), 12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210), 28: ("f64", 1, 8), 30: ("bf16", 1, 2),
}  # fmt: skip
#: {name of a type: elements of a block, bytes of a block}.
BLOCKS = {name: (elements, size) for name, elements, size in TYPES.values()}

#: The most axes of a tensor.
_AXES = 4
#: Bytes of memory that a pair or a tensor takes beyond its texts, at most.
_OBJECTS = 1000

_U64 = Struct("<Q")


class ArrayValue(NamedTuple):
    """An array in the metadata. kind: number of its elements' type; begin: of its first element, in the file."""

    kind: int
    length: int
    begin: int


Value = bool | int | float | str | ArrayValue


class TensorInfo(NamedTuple):
    """A tensor of the file. shape: outermost extent first; begin: of its first byte in the file."""

    format: str
    shape: Shape
    begin: int
    nbytes: int


@dataclass(frozen=True)
class GGUFFile:
    """A file that is mapped. pairs: {key: where its pair begins and ends in the file}."""

    path: str
    data: ByteArray
    metadata: dict[str, Value]
    pairs: dict[str, tuple[int, int]]
    tensors: dict[str, TensorInfo]

    def blocks(self, name: str) -> ByteArray:
        """Returns the bytes of a tensor as they lie in the file, read-only: (rows, bytes of a row)."""
        info = self.tensors[name]
        return self.data[info.begin : info.begin + info.nbytes].reshape(prod(info.shape[:-1]), -1)

    def elements(self, key: str) -> list[str] | list[int] | list[float]:
        """Returns the elements of an array of the metadata. SnapshotError for texts that are no UTF-8."""
        value = self.metadata[key]
        if not isinstance(value, ArrayValue):
            raise SnapshotError(f"{self.path}: {key}: wanted an array, received {str(value)[:100]!r}")
        if value.kind == TEXT:
            return list(self._texts(key, value))
        found: list[int] | list[float] = np.frombuffer(
            self.data, f"<{LETTERS[value.kind]}", value.length, value.begin
        ).tolist()
        return found

    def _texts(self, key: str, value: ArrayValue) -> Iterator[str]:
        begin = value.begin
        for _ in range(value.length):
            (size,) = _U64.unpack_from(self.data.data, begin)
            yield _decoded(f"{self.path}: {key}", bytes(self.data[begin + 8 : begin + 8 + size]))
            begin += 8 + size


def read(path: str | os.PathLike[str]) -> GGUFFile:
    """Reads and checks the whole header of a file; its tensors are mapped. SnapshotError for a damaged one."""
    with raw.to_read(path, "cannot be read") as file:
        name, size = os.fsdecode(path), os.fstat(file.fileno()).st_size
        if size < 24:
            raise SnapshotError(f"{name}: wanted a GGUF file, received one of {size} bytes")
        data = np.asarray(np.memmap(file, np.uint8, "r"))
    return _Header(name, data).file()


def _decoded(where: str, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise SnapshotError(f"{where}: wanted a text in UTF-8, received {text[:50]!r}") from error


class _Header:
    """A position in the header, from which values are read one by one."""

    def __init__(self, path: str, data: ByteArray) -> None:
        self.path, self.data, self.at, self.cost = path, data, 0, 0

    def file(self) -> GGUFFile:
        magic = bytes(self.data[:4])
        if magic != MAGIC:
            wanted = f"a GGUF file, which begins with {MAGIC!r}, or the folder that has config.json"
            raise SnapshotError(f"{self.path}: wanted {wanted}, received {magic!r}")
        self.at = 4
        version = self.number("the version", "I")
        if version not in VERSIONS:
            raise SnapshotError(f"{self.path}: wanted GGUF of version 2 or 3, little-endian, received {version:#x}")
        tensors, pairs = (self.integer(f"the number of {what}", "Q") for what in ("tensors", "pairs"))
        metadata, spans = self.pairs(pairs)
        infos = self.infos(tensors)
        alignment = self.alignment(metadata)
        start = -(-self.at // alignment) * alignment
        self.check_places(infos, start, alignment)
        placed = {name: info._replace(begin=start + info.begin) for name, info in infos.items()}
        return GGUFFile(self.path, self.data, metadata, spans, placed)

    def bytes(self, what: str, size: int) -> ByteArray:
        """The next bytes."""
        if size > len(self.data) - self.at:
            raise SnapshotError(
                f"{self.path}: {what}: wanted {size} bytes from {self.at} on, received a file of {len(self.data)}"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, what: str, letter: str) -> int | float:
        form = Struct(f"<{letter}")
        found: int | float = form.unpack(self.bytes(what, form.size).data)[0]
        return found

    def integer(self, what: str, letter: str = "I") -> int:
        return int(self.number(what, letter))

    def text(self, what: str) -> str:
        size = self.integer(what, "Q")
        found = self.bytes(what, size)
        self.cost += 4 * size + _OBJECTS
        raw.allow(self.path, what, self.cost, len(self.data))
        return _decoded(f"{self.path}: {what}", found.tobytes())

    def pairs(self, count: int) -> tuple[dict[str, Value], dict[str, tuple[int, int]]]:
        metadata: dict[str, Value] = {}
        spans: dict[str, tuple[int, int]] = {}
        for number in range(count):
            begin = self.at
            key = self.text(f"key {number}")
            if key in metadata:
                raise SnapshotError(f"{self.path}: wanted each key once, received {key!r} twice")
            metadata[key] = self.value(key, self.integer(key))
            spans[key] = begin, self.at
        return metadata, spans

    def value(self, key: str, kind: int) -> Value:
        if kind == TEXT:
            return self.text(key)
        if kind == ARRAY:
            return self.array(key)
        found = self.number(key, self.letter(key, kind))
        if kind == BOOL and found not in (0, 1):
            raise SnapshotError(f"{self.path}: {key}: wanted a flag of 0 or 1, received {found}")
        return bool(found) if kind == BOOL else found

    def letter(self, key: str, kind: int) -> str:
        if kind not in LETTERS:
            raise SnapshotError(
                f"{self.path}: {key}: wanted numbers, a text or an array of these, received type {kind}"
            )
        return LETTERS[kind]

    def array(self, key: str) -> ArrayValue:
        kind, count = self.integer(key), self.integer(key, "Q")
        found = ArrayValue(kind, count, self.at)
        if kind == TEXT:
            self.at = self.after_texts(key, count)
        else:
            self.bytes(key, count * Struct(f"<{self.letter(key, kind)}").size)
        return found

    def after_texts(self, key: str, count: int) -> int:
        """Where so many texts end: their sizes are read, and nothing else."""
        at, end, data, unpack = self.at, len(self.data), self.data.data, _U64.unpack_from
        for number in range(count):
            if at + 8 > end or (at := at + 8 + unpack(data, at)[0]) > end:
                raise SnapshotError(f"{self.path}: {key}: wanted {count} texts, received {number} in the file")
        return at

    def infos(self, count: int) -> dict[str, TensorInfo]:
        found: dict[str, TensorInfo] = {}
        for number in range(count):
            name = self.text(f"the name of tensor {number}")
            if name in found:
                raise SnapshotError(f"{self.path}: wanted each tensor once, received {name!r} twice")
            found[name] = self.info(f"tensor {name!r}")
        return found

    def info(self, what: str) -> TensorInfo:
        """The next tensor; its begin is the offset. One of an unknown type has no bytes."""
        axes = self.integer(what)
        if not 1 <= axes <= _AXES:
            raise SnapshotError(f"{self.path}: {what}: wanted 1 to {_AXES} axes, received {axes}")
        shape = tuple(self.integer(what, "Q") for _ in range(axes))[::-1]
        kind, offset = self.integer(what), self.integer(what, "Q")
        name, elements, size = TYPES.get(kind, (f"type {kind}", 1, 0))
        if 0 in shape or shape[-1] % elements:
            wanted = f"extents of at least 1, the innermost a multiple of {elements} for {name}"
            raise SnapshotError(f"{self.path}: {what}: wanted {wanted}, received {shape}")
        return TensorInfo(name, shape, offset, prod(shape) // elements * size)

    def alignment(self, metadata: dict[str, Value]) -> int:
        found = metadata.get(ALIGNMENT, 32)
        if type(found) is not int or found < 1 or found & (found - 1):
            raise SnapshotError(f"{self.path}: {ALIGNMENT}: wanted a power of 2, received {str(found)[:100]}")
        return found

    def check_places(self, infos: dict[str, TensorInfo], start: int, alignment: int) -> None:
        """SnapshotError unless all tensors lie in the file, aligned, and none over another."""
        end = 0
        for name, info in sorted(infos.items(), key=lambda item: item[1].begin):
            if info.begin % alignment or info.begin < end:
                raise SnapshotError(
                    f"{self.path}: tensor {name!r}: wanted an offset from {end} on that is a multiple of {alignment}, "
                    f"received {info.begin}"
                )
            end = info.begin + info.nbytes
            if start + end > len(self.data):
                raise SnapshotError(
                    f"{self.path}: tensor {name!r}: wanted {info.nbytes} bytes from {start + info.begin} on, received "
                    f"a file of {len(self.data)}"
                )
