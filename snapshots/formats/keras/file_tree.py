"""The tree in a file of weights in Keras's layout, written here or by Keras."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import manifest
from singa_lite.snapshots.formats.keras.cells import Variable
from singa_lite.snapshots.formats.keras.groups import FileGroup, Group, fitting, groups_of_net, guessed_groups, matched
from singa_lite.snapshots.formats.keras.net import layers_of
from singa_lite.snapshots.manifest import Attribute, Manifest
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.hdf5 import guarded
from singa_lite.snapshots.tree import ArraySpec, LazyArray, Tree, random_state, weights_tree

#: Our own group in the file, with the manifest's bytes and, as an attribute, their SHA-256.
OURS = "singa_lite"
MANIFEST = f"{OURS}/manifest"


def tree_of(file: guarded.File, wanted: Tree | None) -> Tree:
    """The tree in an open file of weights, with the random state of `wanted`. Where that is partial, arrays of Keras's
    without a place are there under their names in the file.

    SnapshotError for arrays for which there is no place, and for a damaged manifest.
    """
    known = manifest.in_hdf5(file, MANIFEST, "sha256", OURS) if OURS in file.groups else None
    arrays: dict[str, LazyArray] = {}
    unused = dict.fromkeys(_of_layers(file))
    for group in _groups(file, known, wanted):
        for variable in group.variables:
            dataset = f"{group.path}/vars/{variable.number}"
            dtype = _dtype(file.datasets[dataset].dtype, variable.path, wanted)
            fetch = partial(_read, file, known, dataset, variable, dtype)
            arrays[variable.path] = LazyArray(variable.layout.ours, dtype, fetch)
            unused.pop(dataset, None)
    if known is None and wanted is not None and wanted.is_partial:
        for path in unused:
            one = file.datasets[path]
            arrays[path] = LazyArray(one.shape, one.dtype, partial(file.read, path))
    arrays |= random_state(arrays, wanted)
    if known is not None:
        return Tree(arrays, known.attributes | {"entries": len(arrays)}, file.path)
    found = weights_tree(file.path, arrays, wanted)
    if wanted is not None:
        found.attributes["wiring"] = wanted.attributes["wiring"]
    return found


def _groups(file: guarded.File, known: Manifest | None, wanted: Tree | None) -> list[Group]:
    """The groups of the file that are read. SnapshotError for arrays in it for which there is no place."""
    found = _array_groups(file)
    if known is not None:
        specs = {path: ArraySpec(entry.shape, np.dtype(np.float32)) for path, entry in known.entries.items()}
        candidates = _candidates(file.path, known.attributes, specs)
        _check_written(file.path, candidates[0], known)
        return matched(file.path, candidates, found)
    if wanted is None:
        return guessed_groups(file.path, found, file.groups)
    candidates = _candidates(file.path, wanted.attributes, wanted.specs)
    return fitting(candidates, found) if wanted.is_partial else matched(file.path, candidates, found)


def _candidates(
    where: str, attributes: Mapping[str, Attribute], specs: Mapping[str, ArraySpec]
) -> tuple[list[Group], ...]:
    """The groups of a net, and those where its depthwise convolutions have a class of their own."""
    net = layers_of(where, attributes)
    return tuple(groups_of_net(where, net, specs, depthwise) for depthwise in (False, True))


def _dtype(stored: DType, path: str, wanted: Tree | None) -> DType:
    """The dtype that an array is read as: that of `wanted` if every value of the file's fits in, else the file's."""
    native = np.dtype(np.float32) if stored.kind == "V" else stored.newbyteorder("=")
    dtype = native if wanted is None or path not in wanted.arrays else wanted.arrays[path].dtype
    return dtype if np.can_cast(native, dtype, "safe") else native


def _read(file: guarded.File, known: Manifest | None, dataset: str, variable: Variable, dtype: DType) -> Array:
    """Reads an array as the tree has it."""
    array = variable.layout.to_ours(file.read(dataset))
    if not variable.is_stored:
        array = np.zeros_like(array)
    if known is not None:
        known.check(file.path, variable.path, array, file.state())
    if array.dtype.kind == "V":  # bfloat16: the upper half of a float32
        array = (array.view("<u2").astype("<u4") << 16).view(np.float32)
    return array.astype(dtype, copy=False)


def _array_groups(file: guarded.File) -> dict[str, FileGroup]:
    """The groups of the file that hold arrays, by path. SnapshotError for arrays in other places.

    Keras's optimizer and other objects beside the layers, whose names begin with "_", are left out.
    """
    numbered: dict[str, list[int]] = {}
    for path in _of_layers(file):
        match = re.fullmatch(r"(.+)/vars/(0|[1-9]\d{0,3})", path)
        if match is None:
            raise SnapshotError(f"{file.path}: entry {path!r}: wanted layers as Keras 3 has them, '.../vars/0'")
        numbered.setdefault(match[1], []).append(int(match[2]))
    found: dict[str, FileGroup] = {}
    names = 0
    for group, numbers in numbered.items():
        found[group] = _group(file, group, sorted(numbers))
        names += sys.getsizeof(found[group].name)  # each may be the same long text of the file
        raw.allow(file.path, "the names of its layers", names, file.size)
    for group in list(found):
        for outer in _enclosing_layers(file, group, found):
            found[outer] = FileGroup(_name(file, outer), ())
            names += sys.getsizeof(found[outer].name)
            raw.allow(file.path, "the names of its layers", names, file.size)
    return found


def _of_layers(file: guarded.File) -> list[str]:
    """The datasets of layers, and of no optimizer and other object beside them."""
    return [path for path in file.datasets if not path.startswith(("optimizer/", "_")) and path != MANIFEST]


def _enclosing_layers(file: guarded.File, path: str, found: Mapping[str, FileGroup]) -> Iterator[str]:
    """The layers around a group whose arrays are within it, such as a cell: groups with a name and no arrays."""
    outer = path.rpartition("/")[0]
    while outer and outer not in found:
        if f"{outer}/vars" in file.groups:
            yield outer
        outer = outer.rpartition("/")[0]


def _name(file: guarded.File, path: str) -> str:
    """The layer's name; without one that of its group."""
    name = file.attribute("name", f"{path}/vars")
    return name if isinstance(name, str) else path.rpartition("/")[2]


def _group(file: guarded.File, path: str, numbers: list[int]) -> FileGroup:
    """The group at this path, whose arrays have these numbers."""
    if numbers != list(range(len(numbers))):
        raise SnapshotError(f"{file.path}: group {path!r}: wanted arrays numbered from 0, received {numbers}")
    arrays = [f"{path}/vars/{number}" for number in numbers]
    for array in arrays:
        if file.datasets[array].dtype.kind == "V" and file.attribute("dtype", array) != "bfloat16":
            raise SnapshotError(f"{file.path}: entry {array!r}: wanted numbers")
    return FileGroup(_name(file, path), tuple(file.datasets[array].shape for array in arrays))


def _check_written(where: str, groups: list[Group], made: Manifest) -> None:
    """SnapshotError unless the layers have a place for each array of the manifest."""
    placed = {variable.path for group in groups for variable in group.variables}
    for path in made.entries:
        if path not in placed:
            raise SnapshotError(f"{where}: received an entry {path!r}, for which there is no place")
