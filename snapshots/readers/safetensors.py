"""The header of a safetensors file, read with every check that the format prescribes.

A file is 8 bytes, the header's length, little-endian; the header, JSON of {name: {dtype, shape, data_offsets}} and of
texts in "__metadata__", padded with spaces to a multiple of 8; and the arrays without a gap, offsets from their first.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import RawFile, Shape

#: The most bytes of a header that the format allows.
LONGEST = 100_000_000

METADATA = "__metadata__"

#: {the format's code: NumPy's dtype}. BF16 is the upper half of a float32, and is read as such.
DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "uint16", "F32": "float32", "F64": "float64",
    "C64": "complex64",
}  # fmt: skip


class TensorInfo(NamedTuple):
    """An array of the file. code: its dtype in this format; begin, end: offsets from the first array's first byte."""

    code: str
    shape: Shape
    begin: int
    end: int

    @property
    def stored_dtype(self) -> DType:
        """The dtype of its elements in the file."""
        return np.dtype(DTYPES[self.code]).newbyteorder("<")

    @property
    def dtype(self) -> DType:
        """The dtype that they are read as."""
        return np.dtype("float32") if self.code == "BF16" else np.dtype(DTYPES[self.code])

    def numbers(self, elements: Array) -> Array:
        """Elements of `stored_dtype` as numbers of `dtype`."""
        if self.code != "BF16":
            return elements
        return (elements.astype(np.uint32) << 16).view(np.float32)


class Header(NamedTuple):
    """entries: by name; metadata: texts; start: where in the file the first array begins."""

    entries: dict[str, TensorInfo]
    metadata: dict[str, str]
    start: int


def read(file: RawFile) -> Header:
    """Reads and checks the whole header of a file, and nothing of its arrays."""
    text = _text(file)
    start = 8 + len(text)
    contents = raw.load_json(file, "the header", text)
    metadata = _texts(file, contents.pop(METADATA, {}))
    for name in contents:
        encoded(file.path, name)
    entries = {name: _entry(file, name, given) for name, given in contents.items()}
    _check_cover(file, entries, file.size - start)
    return Header(entries, metadata, start)


def _texts(file: RawFile, given: object) -> dict[str, str]:
    """The metadata. SnapshotError unless it is an object of texts."""
    texts = {name: text for name, text in given.items() if isinstance(text, str)} if isinstance(given, dict) else None
    if texts is None or texts != given:
        raise SnapshotError(f"{file.path}: {METADATA}: wanted texts by name, received something else")
    return texts


def encoded(where: str, text: str) -> bytes:
    """A text in UTF-8. SnapshotError for a lone surrogate, which JSON can hold and UTF-8 cannot."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        strange = text[error.start : error.end]
        raise SnapshotError(f"{where}: wanted names that are Unicode, received one with {strange!r}") from error


def _text(file: RawFile) -> bytes:
    size = int.from_bytes(bytes(file.read("the header's length", 0, 8)), "little")
    if not 2 <= size <= min(LONGEST, file.size - 8):
        raise SnapshotError(
            f"{file.path}: wanted a header that a file of {file.size} bytes can hold, of 2 to {LONGEST} bytes, "
            f"received one of {size}"
        )
    text = bytes(file.read("the header", 8, size))
    if not text.startswith(b"{"):
        raise SnapshotError(f"{file.path}: wanted a header that begins with '{{', received {text[:1]!r}")
    return text


def _entry(file: RawFile, name: str, given: object) -> TensorInfo:
    where = f"{file.path}: entry {name!r}"
    if not isinstance(given, dict) or given.keys() != {"dtype", "shape", "data_offsets"}:
        raise SnapshotError(f"{where}: wanted dtype, shape and data_offsets, received {_short(given)}")
    dtype, shape, offsets = given["dtype"], given["shape"], given["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise SnapshotError(f"{where}: wanted a dtype of {', '.join(DTYPES)}, received {_short(dtype)}")
    if not _are_sizes(shape) or len(shape) > 64:
        raise SnapshotError(f"{where}: wanted a shape of at most 64 extents, received {_short(shape)}")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise SnapshotError(f"{where}: wanted data_offsets [begin, end], received {_short(offsets)}")
    entry = TensorInfo(dtype, tuple(shape), *offsets)
    raw.check_shape(where, entry.shape, entry.dtype)
    wanted = prod(entry.shape) * entry.stored_dtype.itemsize
    if wanted != entry.end - entry.begin:
        raise SnapshotError(
            f"{where}: wanted {wanted} bytes for {dtype} {_short(entry.shape)}, received {entry.end - entry.begin}"
        )
    return entry


def _are_sizes(given: object) -> bool:
    """Whether it is a list of whole numbers from 0 of 64 bits. True, which is an int in Python, is no number here."""
    return isinstance(given, list) and all(type(number) is int and 0 <= number < 1 << 63 for number in given)


def _check_cover(file: RawFile, entries: Mapping[str, TensorInfo], size: int) -> None:
    """SnapshotError unless the arrays, one behind the other, are all there is behind the header."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            kind = "overlaps another" if entry.begin < end else "leaves a hole before it"
            raise SnapshotError(
                f"{file.path}: entry {name!r} {kind}: wanted it to begin at {end}, received {entry.begin}"
            )
        end = entry.end
    if end != size:
        raise SnapshotError(f"{file.path}: wanted {end} bytes of arrays, received {size}")


def _short(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 100 else f"{text[:97]}..."
