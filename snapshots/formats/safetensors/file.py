"""The tree in a safetensors file, by PyTorch's names and in its layouts; and files of PyTorch's as a tree.

What a file of ours has beyond a state_dict (optimizer state, random state) is under paths, and the manifest is in the
header's metadata, so that it gives back everything to the bit. `names` says what the layers are called elsewhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import TypeVar

from singa_lite.errors import SnapshotError
from singa_lite.snapshots import manifest
from singa_lite.snapshots.files import output
from singa_lite.snapshots.files.atomic import replacing
from singa_lite.snapshots.files.saver_threads import SaverThreads
from singa_lite.snapshots.formats.safetensors import header as tensors_header
from singa_lite.snapshots.formats.safetensors import torch_names
from singa_lite.snapshots.formats.safetensors.place import Place
from singa_lite.snapshots.formats.safetensors.source import of_known, of_others
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.readers import guarded_json, raw, safetensors
from singa_lite.snapshots.readers.raw import Stored
from singa_lite.snapshots.readers.safetensors import Entry, Header
from singa_lite.snapshots.tree import Form, Tree

#: In the metadata: the manifest's text, its digest, and {path: [name, axes]} as JSON.
_MANIFEST, _SHA256, _NAMES = "singa_lite.manifest", "singa_lite.sha256", "singa_lite.names"

Names = Mapping[str, str]
T = TypeVar("T")


def save(contents: Tree, path: str | os.PathLike[str], *, names: Names | None = None) -> None:
    """Write a tree, one array at a time. names: {layer: PyTorch's module, or path: full name}.

    SnapshotError for what cannot be written, and for two entries of one name; the file at `path` is then as before.
    """
    shown = os.fsdecode(path)
    forms = contents.shapes
    places = torch_names.places(shown, forms, contents.attributes.get("layers"), names)
    entries = _laid_out(forms, places)
    blank = {entry: manifest.Entry(shape, dtype.name, "0" * 64) for entry, (shape, dtype) in forms.items()}
    header = _header(shown, entries, places, Manifest(contents.attributes, blank))  # as long as with the digests
    size, total = len(header), len(header) + sum(lazy.nbytes for lazy in contents.arrays.values())
    raw.allow(shown, "the header, when it is read", guarded_json.cost(header), total)
    written = Manifest(contents.attributes)
    with replacing(path) as file, SaverThreads(written, file.fileno()) as threads:
        file.seek(size)
        for entry in entries:
            array = contents.arrays[entry].fetched(f"{shown}: entry {entry!r}")
            with output.writing(entry, total), threads.entering(entry, array):
                output.write_array(file, places[entry].stored(array))
            del array  # before the next one is fetched
        file.seek(0)
        with output.writing("the header", total):
            output.write_all(file, _header(shown, entries, places, written))


def _laid_out(forms: Mapping[str, Form], places: Mapping[str, Place]) -> dict[str, Entry]:
    """Where each array will be; those of larger elements first, so that all begin at multiples of theirs."""
    entries: dict[str, Entry] = {}
    end = 0
    for path, (shape, dtype) in sorted(forms.items(), key=lambda item: -item[1][1].itemsize):
        begin, end = end, end + prod(shape) * dtype.itemsize
        entries[path] = Entry(tensors_header.code_of(dtype), places[path].stored_shape(shape), begin, end)
    return entries


def _header(where: str, entries: Mapping[str, Entry], places: Mapping[str, Place], known: Manifest) -> bytes:
    metadata = {
        "format": "pt",  # what readers of PyTorch's files ask for
        _MANIFEST: known.to_bytes().decode(),
        _SHA256: known.sha256,
        _NAMES: json.dumps({path: places[path] for path in entries}, separators=(",", ":")),
    }
    return tensors_header.to_bytes(where, {places[path].name: entry for path, entry in entries.items()}, metadata)


@contextmanager
def opened(path: str | os.PathLike[str], like: Tree | None, *, names: Names | None = None) -> Iterator[Tree]:
    """A file as a tree. names: as for `save`; a file of ours knows its own, and is renamed by these.

    A file of PyTorch's is read unverified, by the names of the entries of `like`, or by names and shapes alone. Its
    num_batches_tracked are left out; other strange entries are there by their own names. Its floats are widened to
    those of `like`, bfloat16 at least to float32. Of those left out tells the attribute `left_out`.
    """
    with raw.reading(path) as stored:
        header = safetensors.read(stored)
        known = _manifest(stored, header)
        places = _found(stored.path, header, like, names) if known is None else _written(stored, header, known)
        if known is not None and names is not None and like is not None:
            yield of_known(stored, header, known, _renamed(stored.path, places, like, names))
        elif known is not None:
            yield of_known(stored, header, known, {path: (path, place) for path, place in places.items()})
        else:
            yield of_others(stored, header, places, like)


def _manifest(stored: Stored, header: Header) -> Manifest | None:
    """That of a file of ours, None for another's."""
    if not any(key.startswith("singa_lite") for key in header.metadata):
        return None
    missing = {_MANIFEST, _SHA256, _NAMES} - header.metadata.keys()
    if missing:
        raise SnapshotError(f"{stored.path}: wanted {sorted(missing)} in its metadata, received none of that name")
    text = header.metadata[_MANIFEST].encode(errors="replace")
    return manifest.read(stored.path, text, header.metadata[_SHA256], stored.size)


def _written(stored: Stored, header: Header, known: Manifest) -> dict[str, Place]:
    """The places that a file of ours notes, which are all its entries and all the manifest's."""
    text = header.metadata[_NAMES].encode(errors="replace")
    given = guarded_json.loads(stored, "the names", text)
    places = {path: Place.of(f"{stored.path}: entry {path!r}", place) for path, place in given.items()}
    for what, wanted, found in (
        ("the manifest's entries", set(known.entries), set(places)),
        ("the names of its arrays", set(header.entries), {place.name for place in places.values()}),
    ):
        if wanted != found or len(places) != len(found):
            raise SnapshotError(f"{stored.path}: wanted {what}, received names that differ in {sorted(wanted ^ found)}")
    for path, place in places.items():
        axes = len(header.entries[place.name].shape)
        if not place.fits(axes):
            raise SnapshotError(f"{stored.path}: entry {path!r}: wanted an order of {axes} axes, received {place.axes}")
    return places


def _found(where: str, header: Header, like: Tree | None, names: Names | None) -> dict[str, Place]:
    """The places of a file of PyTorch's."""
    forms = {name: (entry.shape, entry.form) for name, entry in header.entries.items()}
    if like is None:
        return torch_names.guessed_places(where, forms, names)
    wanted = _by_name(where, like, names)
    used = [name for name in forms if name in wanted or name.rpartition(".")[2] not in torch_names.IGNORED]
    return _once(where, [wanted.get(name, (name, Place(name))) for name in used])


def _renamed(where: str, places: Mapping[str, Place], like: Tree, names: Names) -> dict[str, tuple[str, Place]]:
    """{path: (path when it was written, place)}: entries that `names` calls so are those of these paths."""
    wanted = _by_name(where, like, names)
    moved = [(wanted.get(place.name, (path, place))[0], (path, place)) for path, place in places.items()]
    return _once(where, moved)


def _by_name(where: str, like: Tree, names: Names | None) -> dict[str, tuple[str, Place]]:
    places = torch_names.places(where, like.shapes, like.attributes.get("layers"), names)
    return {place.name: (path, place) for path, place in places.items()}


def _once(where: str, pairs: Sequence[tuple[str, T]]) -> dict[str, T]:
    found: dict[str, T] = {}
    for path, item in pairs:
        if path in found:
            raise SnapshotError(f"{where}: entry {path!r}: wanted one array for it, received several of that name")
        found[path] = item
    return found
