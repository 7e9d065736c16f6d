"""The tree in a safetensors file, by PyTorch's names and in its layouts; and files of PyTorch's as a tree.

What a file of ours has beyond a state_dict (optimizer state, random state) is under its path in the tree. The manifest
is in the header's metadata. `names` says what layers are called in PyTorch. A NameMap may put several arrays into one
of the file's, such as query, key and value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from typing import TypeVar

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.atomic import replacing
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import manifest
from singa_lite.snapshots.files import output
from singa_lite.snapshots.files.output import SaverThreads
from singa_lite.snapshots.formats.safetensors import torch_names
from singa_lite.snapshots.formats.safetensors.entries import Entry, header_bytes, laid_out
from singa_lite.snapshots.formats.safetensors.file_tree import foreign_tree, of_known
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.readers import guarded_json, raw, safetensors
from singa_lite.snapshots.readers.raw import RawFile
from singa_lite.snapshots.readers.safetensors import Header
from singa_lite.snapshots.torch_layout import NameMap, Names, TorchLayout
from singa_lite.snapshots.tree import ArraySpec, Tree
from singa_lite.tensor import Shape

#: In the metadata: the manifest's text, its digest, and {path: [name, axes]} as JSON.
_MANIFEST, _SHA256, _NAMES = "singa_lite.manifest", "singa_lite.sha256", "singa_lite.names"

T = TypeVar("T")


def save(contents: Tree, path: str | os.PathLike[str], *, names: Names | None = None) -> None:
    """Write a tree, one array at a time. names: {layer: PyTorch's module, or path: full name}, or a NameMap.

    SnapshotError for what cannot be written, and for two entries of one name; the file at `path` is then as before.
    """
    shown = os.fsdecode(path)
    specs = contents.specs
    layouts = torch_names.layouts(shown, specs, contents.attributes.get("layers"), names)
    entries = laid_out(shown, specs, layouts)
    blank = {entry: manifest.ManifestEntry(shape, dtype.name, "0" * 64) for entry, (shape, dtype) in specs.items()}
    header = _header(shown, entries, layouts, Manifest(contents.attributes, blank))  # as long as with the digests
    size, total = len(header), len(header) + sum(lazy.nbytes for lazy in contents.arrays.values())
    raw.allow(shown, "the header, when it is read", guarded_json.cost(header), total)
    written = Manifest(contents.attributes)
    with replacing(path) as file, SaverThreads(written, file.fileno()) as threads:
        file.seek(size)
        for name, entry in entries.items():
            whole = np.empty(entry.info.shape, entry.info.dtype) if layouts[entry.paths[0]].part else None
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
        _MANIFEST: known.to_bytes().decode(),
        _SHA256: known.sha256,
        _NAMES: json.dumps(
            {path: layouts[path].noted() for entry in entries.values() for path in entry.paths}, separators=(",", ":")
        ),
    }
    return header_bytes(where, {name: entry.info for name, entry in entries.items()}, metadata)


@contextmanager
def opened(path: str | os.PathLike[str], wanted: Tree | None, *, names: Names | None = None) -> Iterator[Tree]:
    """A file as a tree. names: as for `save`; a file of ours knows its own, and is renamed by these.

    A file of PyTorch's is read unverified, by the names of the entries of `wanted`, or by names and shapes alone. Its
    num_batches_tracked are left out, and named in the attribute `left_out`; other strange entries keep their names. Its
    floats are widened to those of `wanted`, bfloat16 at least to float32.
    """
    with raw.reading(path) as file:
        header = safetensors.read(file)
        known = _manifest(file, header)
        layouts = _torch_layouts(file.path, header, wanted, names) if known is None else _written(file, header, known)
        if known is not None and names is not None and wanted is not None:
            yield of_known(file, header, known, _renamed(file.path, layouts, wanted, names))
        elif known is not None:
            yield of_known(file, header, known, {path: (path, layout) for path, layout in layouts.items()})
        else:
            copies = names.copies if isinstance(names, NameMap) else {}
            yield foreign_tree(file, header, layouts, wanted, copies)


def _manifest(file: RawFile, header: Header) -> Manifest | None:
    """The manifest of a file of ours, None for another program's."""
    if not any(key.startswith("singa_lite") for key in header.metadata):
        return None
    missing = {_MANIFEST, _SHA256, _NAMES} - header.metadata.keys()
    if missing:
        raise SnapshotError(f"{file.path}: wanted {sorted(missing)} in its metadata, received none of that name")
    text = header.metadata[_MANIFEST].encode(errors="replace")
    return manifest.read(file.path, text, header.metadata[_SHA256], file.size)


def _written(file: RawFile, header: Header, known: Manifest) -> dict[str, TorchLayout]:
    """The layouts in the metadata. SnapshotError unless they name all entries of the file and of the manifest."""
    text = header.metadata[_NAMES].encode(errors="replace")
    given = guarded_json.loads(file, "the names", text)
    layouts = {path: TorchLayout.of(f"{file.path}: entry {path!r}", layout) for path, layout in given.items()}
    places = {(layout.name, layout.part) for layout in layouts.values()}
    for what, wanted, found, count in (
        ("the manifest's entries", set(known.entries), set(layouts), len(layouts)),
        ("the names of its arrays", set(header.entries), {name for name, _ in places}, len(places)),
    ):
        if wanted != found or len(layouts) != count:
            raise SnapshotError(f"{file.path}: wanted {what}, received names that differ in {sorted(wanted ^ found)}")
    for path, layout in layouts.items():
        shape = header.entries[layout.name].shape
        if not layout.fits(len(shape)):
            raise SnapshotError(
                f"{file.path}: entry {path!r}: wanted an order of {len(shape)} axes, received {layout.axes}"
            )
        _check_part(file.path, shape, layout)
    return layouts


def _check_part(where: str, shape: Shape, layout: TorchLayout) -> None:
    if layout.part is not None and not layout.has_part(shape):
        axis, _, _, whole = layout.part
        raise SnapshotError(
            f"{where}: entry {layout.name!r}: wanted an extent of {whole} along axis {axis}, received shape {shape}"
        )


def _torch_layouts(where: str, header: Header, wanted: Tree | None, names: Names | None) -> dict[str, TorchLayout]:
    """The layouts of a file of PyTorch's, by path."""
    specs = {name: ArraySpec(entry.shape, entry.dtype) for name, entry in header.entries.items()}
    if wanted is None:
        return torch_names.guessed_layouts(where, specs, names)
    attributes = wanted.attributes
    layouts = torch_names.layouts(where, wanted.specs, attributes.get("layers"), names, specs, wanted.is_partial)
    found = {path: layout for path, layout in layouts.items() if layout.name in specs}
    for layout in found.values():
        _check_part(where, specs[layout.name].shape, layout)
    used = {layout.name for layout in found.values()}
    strange = [(name, TorchLayout(name)) for name in specs if name not in used and not _is_ignored(name, names)]
    return _by_path(where, [*found.items(), *strange])


def _is_ignored(name: str, names: Names | None) -> bool:
    return name.rpartition(".")[2] in torch_names.IGNORED or (isinstance(names, NameMap) and names.is_beside(name))


def _renamed(
    where: str, layouts: Mapping[str, TorchLayout], wanted: Tree, names: Names
) -> dict[str, tuple[str, TorchLayout]]:
    """{path: (path when it was written, layout)}: an entry with a name in `names` is moved to the path of that name."""
    if isinstance(names, NameMap):
        known = names.paths(where, wanted.specs)
    else:
        present = {layout.name for layout in layouts.values()}
        asked = torch_names.layouts(where, wanted.specs, wanted.attributes.get("layers"), names, present)
        known = {(layout.name, layout.part): path for path, layout in asked.items()}
    moved = [(known.get((layout.name, layout.part), path), (path, layout)) for path, layout in layouts.items()]
    return _by_path(where, moved)


def _by_path(where: str, pairs: Sequence[tuple[str, T]]) -> dict[str, T]:
    found: dict[str, T] = {}
    for path, item in pairs:
        if path in found:
            raise SnapshotError(f"{where}: entry {path!r}: wanted one array for it, received several of that name")
        found[path] = item
    return found
