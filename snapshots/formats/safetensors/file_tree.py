"""Reads a safetensors file as a tree: which layouts its arrays have, and each array as the tree has it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import manifest, output
from singa_lite.snapshots.formats.safetensors import torch_names
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.readers import raw, safetensors
from singa_lite.snapshots.readers.raw import RawFile
from singa_lite.snapshots.readers.safetensors import Header, TensorInfo
from singa_lite.snapshots.torch_layout import NameMap, Names, TorchLayout
from singa_lite.snapshots.tree import ArraySpec, LazyArray, Tree, weights_tree
from singa_lite.tensor import Shape

#: In the metadata: the manifest's text, its digest, and {path: [name, axes]} as JSON.
MANIFEST, SHA256, NAMES = "singa_lite.manifest", "singa_lite.sha256", "singa_lite.names"

T = TypeVar("T")

#: Elements that are converted at once.
_AT_ONCE = 1 << 20


class _Array(NamedTuple):
    """An array of the file. path: in the tree; begin: its first byte in the file; dtype: what it is read as.

    copies: entries of the file that hold the same array again.
    """

    file: RawFile
    path: str
    entry: TensorInfo
    begin: int
    layout: TorchLayout
    dtype: DType
    copies: tuple[TensorInfo, ...] = ()

    def read(self) -> Array:
        """The array as the tree has it, perhaps a view. SnapshotError where a copy in the file is not equal."""
        for copy in self.copies:
            self._check_copy(copy)
        if self.dtype != self.entry.stored_dtype:
            return self.layout.restored(self._widened())
        data = self.file.read(f"entry {self.path!r}", self.begin, self.entry.end - self.entry.begin)
        where = f"{self.file.path}: entry {self.path!r}"
        return self.layout.restored(raw.to_array(where, data, self.entry.stored_dtype, self.entry.shape))

    def _check_copy(self, copy: TensorInfo) -> None:
        """SnapshotError unless another array of the file holds the same bytes."""
        what, start = f"entry {self.path!r}", self.begin - self.entry.begin
        size = self.entry.end - self.entry.begin
        same = (copy.code, copy.shape) == (self.entry.code, self.entry.shape)
        for first in range(0, size if same else 0, _AT_ONCE):
            count = min(_AT_ONCE, size - first)
            one, other = (self.file.read(what, start + info.begin + first, count) for info in (self.entry, copy))
            same = same and np.array_equal(one, other)
        if not same:
            raise SnapshotError(
                f"{self.file.path}: {what}: wanted {self.layout.name!r} and its copies in the file to be equal, as the "
                "net has one array for them, received others"
            )

    def _widened(self) -> Array:
        """The array in a wider dtype, converted some elements at a time."""
        count, lies_as = prod(self.entry.shape), self.entry.stored_dtype
        self.file.allow(f"entry {self.path!r} in {self.dtype}", count * self.dtype.itemsize)
        found = np.empty(count, self.dtype)
        for first in range(0, count, _AT_ONCE):
            part = found[first : first + _AT_ONCE]
            begin = self.begin + first * lies_as.itemsize
            data = self.file.read(f"entry {self.path!r}", begin, part.size * lies_as.itemsize)
            part[:] = self.entry.numbers(data.view(lies_as))
        return found.reshape(self.entry.shape)


@contextmanager
def opened(path: str | os.PathLike[str], wanted: Tree | None, *, names: Names | None = None) -> Iterator[Tree]:
    """A file as a tree. names: as for `save`; a file of ours knows its own, and is renamed by these.

    A file of PyTorch's is read unverified, by the names of the entries of `wanted`, or by names and shapes alone. Its
    num_batches_tracked are left out, and named in `left_out`; other strange entries keep their names. Its
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
    missing = {MANIFEST, SHA256, NAMES} - header.metadata.keys()
    if missing:
        raise SnapshotError(f"{file.path}: wanted {sorted(missing)} in its metadata, received none of that name")
    text = header.metadata[MANIFEST].encode(errors="replace")
    return manifest.read(file.path, text, header.metadata[SHA256], file.size)


def _written(file: RawFile, header: Header, known: Manifest) -> dict[str, TorchLayout]:
    """The layouts in the metadata. SnapshotError unless they name all entries of the file and of the manifest."""
    text = header.metadata[NAMES].encode(errors="replace")
    given = raw.load_json(file, "the names", text)
    layouts = {path: TorchLayout.from_noted(f"{file.path}: entry {path!r}", layout) for path, layout in given.items()}
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
    return name.rpartition(".")[2] in torch_names.IGNORED or (isinstance(names, NameMap) and names.is_ignored(name))


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


def of_known(file: RawFile, header: Header, known: Manifest, entries: Mapping[str, tuple[str, TorchLayout]]) -> Tree:
    """The tree of a file of ours, verified. entries: {path: (path in the manifest, layout)}."""
    arrays = {}
    for path, (known_as, layout) in entries.items():
        array = _array(file, header, path, layout)
        array = array._replace(dtype=array.entry.stored_dtype.newbyteorder("="))
        shape = layout.restored_shape(array.entry.shape)
        arrays[path] = LazyArray(shape, array.dtype, partial(_verified, known, known_as, array))
    return Tree(arrays, dict(known.attributes), file.path)


def foreign_tree(
    file: RawFile,
    header: Header,
    layouts: Mapping[str, TorchLayout],
    wanted: Tree | None,
    copies: Mapping[str, tuple[str, ...]],
) -> Tree:
    """The tree of another program's file. wanted: its floats' dtypes are taken where they are wider.

    copies: {path: names in the file that hold the same array, if they are there}.
    """
    arrays = {}
    for path, layout in layouts.items():
        wanted_dtype = None if wanted is None or path not in wanted.arrays else wanted.arrays[path].dtype
        again = [name for name in copies.get(path, ()) if name in header.entries and name != layout.name]
        array = _array(file, header, path, layout, wanted_dtype)
        array = array._replace(copies=tuple(header.entries[name] for name in again))
        arrays[path] = LazyArray(layout.restored_shape(array.entry.shape), array.dtype, array.read)
    found = weights_tree(file.path, arrays, wanted)
    found.left_out = sorted(header.entries.keys() - {layout.name for layout in layouts.values()})
    return found


def _array(file: RawFile, header: Header, path: str, layout: TorchLayout, wanted_dtype: DType | None = None) -> _Array:
    entry = header.entries[layout.name]
    dtype = entry.dtype
    if wanted_dtype is not None and dtype.kind == wanted_dtype.kind == "f" and np.can_cast(dtype, wanted_dtype):
        dtype = wanted_dtype
    return _Array(file, path, entry, header.start + entry.begin, layout, dtype)


def _verified(known: Manifest, known_as: str, array: _Array) -> Array:
    found = array.read()
    found = found if found.flags.c_contiguous else output.copied(found, found.dtype)
    known.check(array.file.path, known_as, found, array.file.state())
    return found
