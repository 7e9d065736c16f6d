"""Which arrays of a tree make up each array of a safetensors file, where in the file it will be, and the header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from singa_lite.common.array_types import DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers.safetensors import DTYPES, LONGEST, METADATA, TensorInfo, encoded
from singa_lite.snapshots.torch_layout import AxisSlice, TorchLayout
from singa_lite.snapshots.tree import ArraySpec
from singa_lite.tensor import Shape


class Entry(NamedTuple):
    """An array of the file, and the paths in the tree of what it holds: one, or its parts in their order."""

    info: TensorInfo
    paths: tuple[str, ...]


def laid_out(where: str, specs: Mapping[str, ArraySpec], layouts: Mapping[str, TorchLayout]) -> dict[str, Entry]:
    """{name in the file: its entry}. Those of larger elements come first, so that all elements are aligned.

    SnapshotError for parts that do not make up a whole.
    """
    paths: dict[str, list[str]] = {}
    for path in sorted(specs, key=lambda path: -specs[path].dtype.itemsize):
        paths.setdefault(layouts[path].name, []).append(path)
    entries: dict[str, Entry] = {}
    end = 0
    for name, held in paths.items():
        shape, dtype = _file_shape(where, name, held, specs, layouts), specs[held[0]].dtype
        begin, end = end, end + prod(shape) * dtype.itemsize
        ordered = sorted(held, key=lambda path: layouts[path].part or AxisSlice(0, 0, 0, 0))
        entries[name] = Entry(TensorInfo(code_of(dtype), shape, begin, end), tuple(ordered))
    return entries


def _file_shape(
    where: str, name: str, paths: list[str], specs: Mapping[str, ArraySpec], layouts: Mapping[str, TorchLayout]
) -> Shape:
    """The shape of the file's array."""
    pieces = [(layouts[path].part, layouts[path].stored_shape(specs[path].shape)) for path in paths]
    part, shape = pieces[0]
    if part is None:
        return shape
    wanted, end = part.whole_shape(shape), 0
    for piece, of_piece in sorted((piece, shape) for piece, shape in pieces if piece is not None):
        if piece.begin != end or piece.of_shape(wanted) != of_piece:
            break
        end = piece.end
    if end != part.whole or len({specs[path].dtype for path in paths}) > 1:
        found = {path: specs[path] for path in paths}
        raise SnapshotError(f"{where}: entry {name!r}: wanted parts of an array {wanted}, received {found}")
    return wanted


_CODES = {name: code for code, name in DTYPES.items() if code != "BF16"}


def code_of(dtype: DType) -> str:
    """The format's name of a dtype that the format has."""
    return _CODES[dtype.name]


def header_bytes(where: str, entries: Mapping[str, TensorInfo], metadata: Mapping[str, str]) -> bytes:
    """Length and header, as a file begins. SnapshotError for a name that is no Unicode, and for a header too long."""
    contents: dict[str, object] = {METADATA: dict(metadata)}
    for name, entry in entries.items():
        contents[name] = {"dtype": entry.code, "shape": entry.shape, "data_offsets": (entry.begin, entry.end)}
    text = encoded(where, json.dumps(contents, ensure_ascii=False, separators=(",", ":")))
    text += b" " * (-len(text) % 8)
    if METADATA in entries or len(text) > LONGEST:
        raise SnapshotError(f"{where}: wanted at most {LONGEST} bytes of header and no entry {METADATA!r}")
    return len(text).to_bytes(8, "little") + text
