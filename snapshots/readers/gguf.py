"""Reads the header of a GGUF file with every check that the format prescribes, and maps the bytes of its tensors.

A file is "GGUF", the version, the counts of tensors and of pairs, all little-endian; pairs of a key and a value with
its type; of each tensor its name, extents (innermost first), type and offset; a gap; the tensors, aligned.

The package gguf makes an array of each element of the metadata: 157 MiB and 1.7 s for SmolLM2's 98 MB, and 1.3 GiB for
a file of 2 MB that is made for it. Here they stay in the file: 0.1 MiB and 10 ms.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from struct import Struct
from typing import Any, NamedTuple

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
#: The key of how many files a model is in, and the name of one of them.
_SPLIT, _PART = "split.count", re.compile(r"(.*)-00001-of-(\d{5})\.gguf", re.DOTALL)

_U64 = Struct("<Q")


class ArrayValue(NamedTuple):
    """An array in the metadata. kind: number of its elements' type; begin: of its first element, in the file."""

    kind: int
    length: int
    begin: int


Value = bool | int | float | str | ArrayValue


class TensorInfo(NamedTuple):
    """A tensor of a file. shape: outermost extent first; data: its bytes, read-only, in the mapped file."""

    format: str
    shape: Shape
    data: ByteArray


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
        return info.data.reshape(prod(info.shape[:-1]), -1)

    def elements(self, key: str) -> list[Any]:
        """Returns the elements of an array of the metadata. SnapshotError for texts that are no UTF-8."""
        value = self.metadata[key]
        if not isinstance(value, ArrayValue):
            raise SnapshotError(f"{self.path}: {key}: wanted an array, received {str(value)[:100]!r}")
        if value.kind == TEXT:
            return list(self._texts(key, value))
        found: list[Any] = np.frombuffer(self.data, f"<{LETTERS[value.kind]}", value.length, value.begin).tolist()
        return found

    def _texts(self, key: str, value: ArrayValue) -> Iterator[str]:
        begin = value.begin
        for _ in range(value.length):
            (size,) = _U64.unpack_from(self.data.data, begin)
            yield _decoded(f"{self.path}: {key}", bytes(self.data[begin + 8 : begin + 8 + size]))
            begin += 8 + size


def read(path: str | os.PathLike[str]) -> GGUFFile:
    """Reads and checks the whole header of a file; its tensors are mapped. SnapshotError for a damaged one.

    Of a model in several files, path is the first one: the others lie beside it, FileNotFoundError for one that does
    not, and their tensors are among those of the first.
    """
    first = _read_one(os.fsdecode(path))
    count = first.metadata.get(_SPLIT, 1)
    if count in (0, 1):
        return first
    name = _PART.fullmatch(first.path)
    if name is None or int(name[2]) != count:
        wanted = "a whole model, or the first of its files, <name>-00001-of-<count>.gguf, beside the others"
        raise SnapshotError(f"{first.path}: wanted {wanted}, received another with {_SPLIT} {str(count)[:20]}")
    for number in range(2, int(name[2]) + 1):
        part = _read_one(f"{name[1]}-{number:05}-of-{name[2]}.gguf")
        twice = sorted(part.tensors.keys() & first.tensors.keys())
        if twice:
            raise SnapshotError(f"{part.path}: wanted each tensor in one file, received {twice[:8]} twice")
        first.tensors.update(part.tensors)
    return first


def _read_one(path: str) -> GGUFFile:
    with raw.to_read(path, "cannot be read") as file:
        is_empty = os.fstat(file.fileno()).st_size == 0  # and cannot be mapped
        data = np.empty(0, np.uint8) if is_empty else np.asarray(np.memmap(file, np.uint8, "r"))
    return _Header(path, data).file()


def _decoded(where: str, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise SnapshotError(f"{where}: wanted a text in UTF-8, received {text[:50]!r}") from error


class _Header:
    """A position in the header, from which values are read one by one. what: is read, for errors."""

    def __init__(self, path: str, data: ByteArray) -> None:
        self.path, self.data, self.at, self.cost, self.what = path, data, 0, 0, "the header"

    def file(self) -> GGUFFile:
        magic = self.bytes(4).tobytes()
        if magic != MAGIC:
            raise self.error(f"a GGUF file, which begins with {MAGIC!r}, or the folder that has config.json", magic)
        version = self.number()
        if version not in VERSIONS:
            raise self.error("GGUF of version 2 or 3, little-endian", hex(version))
        tensors, pairs = self.number("Q"), self.number("Q")
        metadata, spans = self.pairs(pairs)
        infos = self.infos(tensors)
        self.what, alignment = ALIGNMENT, metadata.get(ALIGNMENT, 32)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise self.error("a power of 2", alignment)
        return GGUFFile(self.path, self.data, metadata, spans, self.placed(infos, alignment))

    def error(self, wanted: str, received: object) -> SnapshotError:
        return SnapshotError(f"{self.path}: {self.what}: wanted {wanted}, received {str(received)[:100]}")

    def bytes(self, size: int) -> ByteArray:
        """The next bytes."""
        if size > len(self.data) - self.at:
            raise self.error(f"{size} bytes from {self.at} on", f"a file of {len(self.data)} bytes")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, letter: str = "I") -> Any:
        form = Struct(f"<{letter}")
        return form.unpack(self.bytes(form.size).data)[0]

    def text(self) -> str:
        size = self.number("Q")
        found = self.bytes(size)
        self.cost += 4 * size + _OBJECTS
        raw.allow(self.path, self.what, self.cost, len(self.data))
        return _decoded(f"{self.path}: {self.what}", found.tobytes())

    def pairs(self, count: int) -> tuple[dict[str, Value], dict[str, tuple[int, int]]]:
        metadata: dict[str, Value] = {}
        spans: dict[str, tuple[int, int]] = {}
        for number in range(count):
            self.what, begin = f"key {number}", self.at
            key = self.text()
            if key in metadata:
                raise self.error("each key once", f"{key[:50]!r} twice")
            self.what = key[:100]
            metadata[key] = self.value(self.number())
            spans[key] = begin, self.at
        return metadata, spans

    def value(self, kind: int) -> Value:
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            return self.array(self.number(), self.number("Q"))
        found: bool | int | float = self.number(self.letter(kind))
        if kind == BOOL and found not in (0, 1):
            raise self.error("a flag of 0 or 1", found)
        return bool(found) if kind == BOOL else found

    def letter(self, kind: int) -> str:
        if kind not in LETTERS:
            raise self.error("numbers, a text or an array of these", f"type {kind}")
        return LETTERS[kind]

    def array(self, kind: int, count: int) -> ArrayValue:
        begin = self.at
        if kind == TEXT:
            self.skip_texts(count)
        else:
            self.bytes(count * Struct(f"<{self.letter(kind)}").size)
        return ArrayValue(kind, count, begin)

    def skip_texts(self, count: int) -> None:
        """Goes on behind so many texts: their sizes are read, and nothing else."""
        at, end, data, unpack = self.at, len(self.data), self.data.data, _U64.unpack_from
        for number in range(count):
            if at + 8 > end or (at := at + 8 + unpack(data, at)[0]) > end:
                raise self.error(f"{count} texts", f"{number} in the file")
        self.at = at

    def infos(self, count: int) -> dict[str, tuple[str, Shape, int, int]]:
        """{name: format, shape, offset, bytes} of the tensors. One of an unknown type has no bytes."""
        found: dict[str, tuple[str, Shape, int, int]] = {}
        for number in range(count):
            self.what = f"the name of tensor {number}"
            name = self.text()
            if name in found:
                raise self.error("each tensor once", f"{name[:50]!r} twice")
            self.what = f"tensor {name[:100]!r}"
            axes = self.number()
            if not 1 <= axes <= _AXES:
                raise self.error(f"1 to {_AXES} axes", axes)
            shape = tuple(self.number("Q") for _ in range(axes))[::-1]
            kind, offset = self.number(), self.number("Q")
            form, elements, size = TYPES.get(kind, (f"type {kind}", 1, 0))
            if 0 in shape or shape[-1] % elements:
                raise self.error(f"extents of at least 1, the innermost a multiple of {elements} for {form}", shape)
            found[name] = form, shape, offset, prod(shape) // elements * size
        return found

    def placed(self, infos: dict[str, tuple[str, Shape, int, int]], alignment: int) -> dict[str, TensorInfo]:
        """The tensors. SnapshotError unless all lie in the file, aligned, and none over another."""
        start, end = -(-self.at // alignment) * alignment, 0
        for name, (_, _, offset, size) in sorted(infos.items(), key=lambda item: item[1][2]):
            self.what = f"tensor {name[:100]!r}"
            if offset % alignment or offset < end:
                raise self.error(f"an offset from {end} on that is a multiple of {alignment}", offset)
            end = offset + size
            if start + end > len(self.data):
                raise self.error(f"{size} bytes from {start + offset} on", f"a file of {len(self.data)} bytes")
        return {
            name: TensorInfo(form, shape, self.data[start + offset : start + offset + size])
            for name, (form, shape, offset, size) in infos.items()
        }
