"""A safetensors file, its header proved, as the tree's source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from singa_lite.snapshots import foreign
from singa_lite.snapshots.files import output
from singa_lite.snapshots.formats.safetensors.place import Place
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import Stored
from singa_lite.snapshots.readers.safetensors import Entry, Header
from singa_lite.snapshots.tree import Lazy, Tree

#: Elements that are widened at once.
_AT_ONCE = 1 << 20


class _Array(NamedTuple):
    """An array of the file. path: in the tree; begin: its first byte; dtype: what it is read as."""

    stored: Stored
    path: str
    entry: Entry
    begin: int
    place: Place
    dtype: np.dtype[Any]

    def read(self) -> NDArray[Any]:
        """As the tree has it, perhaps a view."""
        if self.dtype != self.entry.stored_as:
            return self.place.restored(self._widened())
        data = self.stored.read(f"entry {self.path!r}", self.begin, self.entry.end - self.entry.begin)
        where = f"{self.stored.path}: entry {self.path!r}"
        return self.place.restored(raw.to_array(where, data, self.entry.stored_as, self.entry.shape))

    def _widened(self) -> NDArray[Any]:
        """In a wider dtype, a few elements at a time."""
        count, lies_as = prod(self.entry.shape), self.entry.stored_as
        self.stored.allow(f"entry {self.path!r} in {self.dtype}", count * self.dtype.itemsize)
        found = np.empty(count, self.dtype)
        for first in range(0, count, _AT_ONCE):
            part = found[first : first + _AT_ONCE]
            begin = self.begin + first * lies_as.itemsize
            data = self.stored.read(f"entry {self.path!r}", begin, part.size * lies_as.itemsize)
            part[:] = self.entry.numbers(data.view(lies_as))
        return found.reshape(self.entry.shape)


def of_known(stored: Stored, header: Header, known: Manifest, entries: Mapping[str, tuple[str, Place]]) -> Tree:
    """A file of ours, verified. entries: {path: (path in the manifest, place)}."""
    arrays = {}
    for path, (known_as, place) in entries.items():
        array = _array(stored, header, path, place)
        shape = place.restored_shape(array.entry.shape)
        arrays[path] = Lazy(shape, array.dtype, partial(_verified, known, known_as, array))
    return Tree(arrays, dict(known.attributes), stored.path)


def of_others(stored: Stored, header: Header, places: Mapping[str, Place], like: Tree | None) -> Tree:
    """A file of another program. like: whose dtypes are taken where they hold all that the file's do."""
    arrays = {}
    for path, place in places.items():
        wanted = None if like is None or path not in like.arrays else like.arrays[path].dtype
        array = _array(stored, header, path, place, wanted)
        arrays[path] = Lazy(place.restored_shape(array.entry.shape), array.dtype, array.read)
    left_out = sorted(header.entries.keys() - {place.name for place in places.values()})
    found = foreign.tree_of(stored.path, arrays, like)
    if left_out:
        found.attributes["left_out"] = json.dumps(left_out)
    return found


def _array(stored: Stored, header: Header, path: str, place: Place, wanted: np.dtype[Any] | None = None) -> _Array:
    entry = header.entries[place.name]
    dtype = entry.form
    if wanted is not None and dtype.kind == wanted.kind == "f" and np.can_cast(dtype, wanted):
        dtype = wanted
    return _Array(stored, path, entry, header.start + entry.begin, place, dtype)


def _verified(known: Manifest, known_as: str, array: _Array) -> NDArray[Any]:
    found = array.read()
    found = found if found.flags.c_contiguous else output.copied(found, found.dtype)
    known.check(array.stored.path, known_as, found, array.stored.state())
    return found
