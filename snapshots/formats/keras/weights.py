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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import FileIO
from math import prod

import h5py
import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.atomic import replacing
from singa_lite.snapshots.files import hdf5_writer
from singa_lite.snapshots.formats.keras.cells import Variable
from singa_lite.snapshots.formats.keras.file_tree import MANIFEST, OURS, tree_of
from singa_lite.snapshots.formats.keras.groups import Group, groups_of_net
from singa_lite.snapshots.formats.keras.net import is_chain, layers_of
from singa_lite.snapshots.manifest import Manifest
from singa_lite.snapshots.readers.hdf5 import guarded
from singa_lite.snapshots.tree import LazyArray, Tree

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
    if lazy.dtype.name != "bfloat16":
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
