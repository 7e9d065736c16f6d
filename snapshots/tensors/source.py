"""A safetensors file, its header proved, as the tree's source."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.snapshots import foreign
from singa_lite.snapshots.files import raw
from singa_lite.snapshots.files.raw import Stored
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.tensors.header import Entry, Header
from singa_lite.snapshots.tensors.torch_names import Place
from singa_lite.snapshots.tree import Form, Tree

#: Elements that are widened at once.
_AT_ONCE = 1 << 20


class TensorsSource:
    """An open file as `tree.Source`. entries: {path: (path in the manifest, place)}."""

    def __init__(
        self,
        stored: Stored,
        header: Header,
        known: Manifest | None,
        entries: Mapping[str, tuple[str, Place]],
        like: Tree | None,
    ) -> None:
        self.path = stored.path
        self._stored, self._header, self._manifest, self._entries = stored, header, known, entries
        self._kept = foreign.kept(entries, like) if known is None else {}
        self._wanted = {} if known is not None or like is None else like.arrays
        self.shapes = {path: self._form(path, place) for path, (_, place) in entries.items()} | {
            path: (lazy.shape, lazy.dtype) for path, lazy in self._kept.items()
        }
        self.attributes = foreign.attributes(len(self.shapes), like) if known is None else known.attributes

    def attribute(self, name: str) -> Any:
        """One of the attributes; None if there is none of that name."""
        return self.attributes.get(name)

    def read(self, path: str) -> NDArray[Any]:
        """The array at a path, verified if the file is ours; that of a file of PyTorch's may be a view."""
        if path in self._kept:
            return self._kept[path].fetch()
        if path not in self._entries:
            raise SnapshotError(f"{self.path}: wanted one of its entries, received {path!r}")
        known_as, place = self._entries[path]
        array = self._array(path, place)
        if self._manifest is not None:
            array = array if array.flags.c_contiguous else raw.copied(array, array.dtype)
            self._manifest.check(self.path, known_as, array)
        return array

    def _form(self, path: str, place: Place) -> Form:
        entry = self._header.entries[place.name]
        shape = place.restored_shape(entry.shape)
        wanted = self._wanted[path].dtype if path in self._wanted else entry.form
        widened = entry.form.kind == wanted.kind == "f" and np.can_cast(entry.form, wanted)
        return shape, wanted if widened else entry.form

    def _array(self, path: str, place: Place) -> NDArray[Any]:
        entry = self._header.entries[place.name]
        where, dtype = f"{self.path}: entry {path!r}", self.shapes[path][1]
        begin = self._header.start + entry.begin
        if dtype == entry.stored_as:
            data = self._stored.read(f"entry {path!r}", begin, entry.end - entry.begin)
            array = raw.to_array(where, data, entry.stored_as, entry.shape)
        else:
            array = self._widened(path, entry, begin, dtype)
        return place.restored(array)

    def _widened(self, path: str, entry: Entry, begin: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The array in a wider dtype, a few elements at a time."""
        count = prod(entry.shape)
        self._stored.allow(f"entry {path!r} in {dtype}", count * dtype.itemsize)
        found = np.empty(count, dtype)
        for first in range(0, count, _AT_ONCE):
            part = found[first : first + _AT_ONCE]
            width = entry.stored_as.itemsize
            data = self._stored.read(f"entry {path!r}", begin + first * width, part.size * width)
            part[:] = entry.numbers(data.view(entry.stored_as))
        return found.reshape(entry.shape)
