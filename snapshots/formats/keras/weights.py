"""Weights in the layout of Keras 3, `.weights.h5`: Keras loads what is saved here, and Keras's files load here.

A layer's arrays are the datasets "layers/<class>[_k]/vars/0", "1" and so on; <class> is Keras's, in snake case, k
counts the layers of a class in Keras's order; the attribute `name` of "vars" is the layer's name. Written as Keras does
(keras/src/saving/saving_lib.py), with one group more, "singa_lite", which Keras never looks at: the manifest, by which
a file of ours is verified.

Layouts are converted, values are not; the net in Keras must compute the same as ours on samples with channels last.
Layers are numbered in the order of a Functional with the same layers. Where a layer in Keras contains its activation,
layers of one class may be numbered otherwise; they are then found by their names. BatchNormalization's epsilon is 1e-5
here and 1e-3 there unless given, its momentum is 1 minus Keras's. Its variance is stored as it is, though in training
Keras follows the biased one and we follow the unbiased one. The optimizer's state and random state are not written,
Keras's are not read, and a dropout's random state stays as the net has it. Writing needs h5py.

Layers within layers lie within their groups, "layers/sequential/layers/dense" or "layers/lstm/cell"; the outermost one
is found by its name or number, what is within it by its place. Keras's LSTM and SimpleRNN have one bias, of our two the
sum: it is read as the first, and the second as 0.

Refused are Keras's layers with other arrays than ours: BatchNormalization and LayerNormalization without gamma or beta
(scale=False, center=False), and classes that we lack. The layers of a model within a model are also found, in a net
of ours without such, if every layer with arrays has the name of one of ours.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import FileIO
from math import prod

import h5py
import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.atomic import replacing
from singa_lite.common.checks import is_bfloat16
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import hdf5_writer, manifest
from singa_lite.snapshots.formats.keras.cells import Variable
from singa_lite.snapshots.formats.keras.groups import FileGroup, Group, fitting, groups_of_net, guessed_groups, matched
from singa_lite.snapshots.formats.keras.net import is_chain, layers_of
from singa_lite.snapshots.manifest import Attribute, Manifest
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.hdf5 import guarded
from singa_lite.snapshots.tree import ArraySpec, LazyArray, Tree, random_state, weights_tree

#: Bytes of a converted array that are made at once.
_PIECE = 4 << 20

#: Attributes of the tree that describe the net's layers.
_KEPT = ("format", "version", "layers", "wiring")


def save(contents: Tree, path: str | bytes | os.PathLike[str]) -> None:
    """Write the tree's parameters and running statistics, as Keras names and lays them out.

    SnapshotError for a layer with arrays that Keras lacks, and for what cannot be written, or could not be read; the
    file at `path` is then as before.
    """
    where = os.fsdecode(path)
    net = layers_of(where, contents.attributes)
    groups = groups_of_net(where, net, contents.specs)
    contents = Tree(contents.arrays | _sums(contents, groups), contents.attributes, contents.path)
    with replacing(path) as target:
        _write_all(contents, groups, "sequential" if is_chain(net) else "functional", target)
        with guarded.written(where, target) as file:
            tree_of(file, None)


def _write_all(contents: Tree, groups: list[Group], kind: str, target: FileIO) -> None:
    """kind: the model's class in Keras, in snake case."""
    made = Manifest({name: contents.attributes[name] for name in _KEPT if name in contents.attributes})
    with hdf5_writer.writing(target, made) as writer:
        file = writer.file
        _make_group(file, "vars", kind)
        for group in groups:
            _make_group(file, f"{group.path}/vars", group.name)
            for variable in group.variables:
                write = partial(_write, file, f"{group.path}/vars/{variable.number}", variable)
                writer.add(variable.path, _storable(contents.arrays[variable.path]), write)
        file.create_dataset(MANIFEST, data=np.frombuffer(made.to_bytes(), np.uint8))
        file[OURS].attrs["sha256"] = made.sha256


def _sums(contents: Tree, groups: list[Group]) -> dict[str, LazyArray]:
    """Arrays of which Keras has the sum alone: one becomes the sum, the other 0."""
    found: dict[str, LazyArray] = {}
    for variable in (variable for group in groups for variable in group.variables if not variable.is_stored):
        one, other = contents.arrays[variable.added_to], contents.arrays[variable.path]
        found[variable.added_to] = one._replace(fetch=partial(_sum, one, other))
        found[variable.path] = other._replace(fetch=partial(np.zeros, other.shape, other.dtype))
    return found


def _sum(one: LazyArray, other: LazyArray) -> Array:
    return np.add(one.fetch(), other.fetch(), dtype=one.dtype)


def _storable(lazy: LazyArray) -> LazyArray:
    """bfloat16, which HDF5 lacks, as Keras stores it: two bytes without a meaning. Any other dtype as it is."""
    if not is_bfloat16(lazy.dtype):
        return lazy
    return LazyArray(lazy.shape, np.dtype("V2"), lambda: lazy.fetch().view("V2"))


def _make_group(file: h5py.File, path: str, name: str) -> None:
    try:
        name.encode()
        file.create_group(path).attrs["name"] = name
    except (RuntimeError, TypeError, ValueError) as error:
        raise OSError(f"layer {name!r}: its name cannot be written: {error}") from error


def _write(file: h5py.File, dataset: str, variable: Variable, array: Array) -> None:
    """Make a dataset of an array, converted a piece at a time. OSError for a dtype that HDF5 cannot store."""
    if not variable.is_stored:
        return
    view, row = variable.layout.view(array), variable.layout.row
    try:
        stored = file[dataset] if row else file.create_dataset(dataset, variable.layout.keras, view.dtype)
    except (RuntimeError, TypeError, ValueError) as error:
        raise OSError(f"entry {variable.path!r}: {error}") from error
    if view.dtype.kind == "V":  # see `_storable`
        stored.attrs["dtype"] = "bfloat16"
    if not view.size:  # there may be any number of rows
        return
    if row is not None:
        stored[row] = view
        return
    rows, count = variable.layout.rows(), max(1, _PIECE // (prod(view.shape[1:]) * view.itemsize))
    for start in range(0, len(view), count):
        piece = slice(start, start + count)
        stored[piece] = view[piece] if rows is None else view[rows[piece]]


@contextmanager
def opened(path: str | bytes | os.PathLike[str], wanted: Tree | None = None) -> Iterator[Tree]:
    """The file as a tree.

    A file of ours has our names, and is verified. One of Keras's is matched to `wanted`: by the layers' names if it
    has them all, else by class and number. Without `wanted` its layers keep their names. Narrower floats are widened to
    the dtype in `wanted`; without it bfloat16 becomes float32. SnapshotError for what does not fit; FileNotFoundError
    if there is none.
    """
    with guarded.opened(path) as file:
        yield tree_of(file, wanted)


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
