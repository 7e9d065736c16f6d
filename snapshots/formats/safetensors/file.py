"""The tree in a safetensors file, by PyTorch's names and in its layouts; and files of PyTorch's as a tree.

What a file of ours has beyond a state_dict (optimizer state, random state) is under its path in the tree. The manifest
is in the header's metadata. `names` says what layers are called in PyTorch. A NameMap may put several arrays into one
of the file's, such as query, key and value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from io import FileIO
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.atomic import replacing
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import manifest, output
from singa_lite.snapshots.formats.safetensors import torch_names
from singa_lite.snapshots.formats.safetensors.file_tree import MANIFEST, NAMES, SHA256
from singa_lite.snapshots.formats.safetensors.file_tree import opened as opened
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.output import SaverThreads
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.safetensors import DTYPES, LONGEST, METADATA, TensorInfo, encoded
from singa_lite.snapshots.stored_parameters import is_bits
from singa_lite.snapshots.torch_layout import AxisSlice, Names, TorchLayout
from singa_lite.snapshots.tree import ArraySpec, Tree
from singa_lite.tensor import Shape


def save(contents: Tree, path: str | os.PathLike[str], *, names: Names | None = None) -> None:
    """Write a tree, one array at a time. names: {layer: PyTorch's module, or path: full name}, or a NameMap.

    SnapshotError for what cannot be written, and for two entries of one name; the file at `path` is then as before.
    """
    shown = os.fsdecode(path)
    specs = contents.specs
    layouts = torch_names.layouts(shown, specs, contents.attributes.get("layers"), names)
    entries = laid_out(shown, specs, layouts)
    entries = {
        name: entry._replace(info=entry.info._replace(code="BF16")) if is_bits(contents, entry.paths[0]) else entry
        for name, entry in entries.items()
    }
    blank = {entry: manifest.ManifestEntry(shape, dtype.name, "0" * 64) for entry, (shape, dtype) in specs.items()}
    header = _header(shown, entries, layouts, Manifest(contents.attributes, blank))  # as long as with the digests
    size, total = len(header), len(header) + sum(lazy.nbytes for lazy in contents.arrays.values())
    raw.allow(shown, "the header, when it is read", raw.json_cost(header), total)
    written = Manifest(contents.attributes)
    with replacing(path) as file, SaverThreads(written, file.fileno()) as threads:
        file.seek(size)
        for name, entry in entries.items():
            whole = np.empty(entry.info.shape, entry.info.stored_dtype) if layouts[entry.paths[0]].part else None
            for one in entry.paths:
                array = contents.arrays[one].fetched(f"{shown}: entry {one!r}")
                with output.writing(one, total), threads.entering(one, array):
                    _write(file, layouts[one], array, whole)
                del array  # before the next one is fetched
            if whole is not None:
                with output.writing(name, total):
                    output.write_array(file, whole)
            del whole
        file.seek(0)
        with output.writing("the header", total):
            output.write_all(file, _header(shown, entries, layouts, written))


def _write(file: FileIO, layout: TorchLayout, array: Array, whole: Array | None) -> None:
    """Write an array, or put it into the whole that it is a part of."""
    stored = layout.stored(array)
    if layout.part is None or whole is None:
        output.write_array(file, stored)
    else:
        layout.part.of_array(whole)[...] = stored


def _header(where: str, entries: Mapping[str, Entry], layouts: Mapping[str, TorchLayout], known: Manifest) -> bytes:
    metadata = {
        "format": "pt",  # what readers of PyTorch's files ask for
        MANIFEST: known.to_bytes().decode(),
        SHA256: known.sha256,
        NAMES: json.dumps(
            {path: layouts[path].noted() for entry in entries.values() for path in entry.paths}, separators=(",", ":")
        ),
    }
    return header_bytes(where, {name: entry.info for name, entry in entries.items()}, metadata)


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
