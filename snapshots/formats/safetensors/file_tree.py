"""The tree in a safetensors file whose header has been checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.files import output
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import RawFile
from singa_lite.snapshots.readers.safetensors import Header, TensorInfo
from singa_lite.snapshots.torch_layout import TorchLayout
from singa_lite.snapshots.tree import LazyArray, Tree, weights_tree

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


def of_known(file: RawFile, header: Header, known: Manifest, entries: Mapping[str, tuple[str, TorchLayout]]) -> Tree:
    """The tree of a file of ours, verified. entries: {path: (path in the manifest, layout)}."""
    arrays = {}
    for path, (known_as, layout) in entries.items():
        array = _array(file, header, path, layout)
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
    left_out = sorted(header.entries.keys() - {layout.name for layout in layouts.values()})
    found = weights_tree(file.path, arrays, wanted)
    if left_out:
        found.attributes["left_out"] = json.dumps(left_out)
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
