"""The tree that all formats hold: arrays by path, each made when it is asked for, and attributes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import SnapshotError, SnapshotVersionError
from singa_lite.snapshots.manifest import Attribute
from singa_lite.tensor import Shape

#: The version of trees that are written; a reader refuses a higher one. Since 2 there are `layers` and a manifest.
VERSION = 2


class ArraySpec(NamedTuple):
    """Shape and dtype of an entry, known before its bytes are read."""

    shape: Shape
    dtype: DType


class LazyArray(NamedTuple):
    """An array that is made when asked for, so that a writer holds one at a time. fetch(): C order, on the host."""

    shape: Shape
    dtype: DType
    fetch: Callable[[], Array]

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize

    def fetched(self, where: str) -> Array:
        """The array. SnapshotError unless it has the announced shape and dtype. where: file and entry."""
        array = np.asarray(self.fetch(), order="C")
        if (array.shape, array.dtype) != (self.shape, self.dtype):
            raise SnapshotError(
                f"{where}: wanted {self.shape} {self.dtype}, received {array.shape} {array.dtype} at last"
            )
        return array


@dataclass
class Tree:
    """The contents of a snapshot, of a net or of an open file whose arrays are read when they are asked for.

    arrays: {"parameters/<layer>/weight": array, "state/<layer>/running_mean": ...,
    "optimizer/<layer>/weight/velocity": ..., and in a checkpoint "training/..."}; attributes: format, version, entries
    (how many arrays), layers (JSON: [[name, class], ...] in topological order), wiring (JSON: what surrounds each, as
    `net_tree.wiring` says), and of a compiled net optimizer ("SGD"), step and, where it is not None, state_dtype, and
    within a group of batches accumulate and accumulated, see `step_state`; path: the file's name, for errors;
    is_partial: of a tree that is wanted, whether a file may have other arrays, or lack some; left_out: the names of
    arrays in another program's file that its reader left out.
    """

    arrays: dict[str, LazyArray]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    path: str = ""
    is_partial: bool = False
    left_out: Sequence[str] = ()

    @property
    def specs(self) -> dict[str, ArraySpec]:
        """Shape and dtype of each array."""
        return {entry: ArraySpec(lazy.shape, lazy.dtype) for entry, lazy in self.arrays.items()}

    def with_more(self, arrays: Mapping[str, LazyArray]) -> Tree:
        """A tree that has these arrays too, before it is written."""
        every = {**self.arrays, **arrays}
        return Tree(every, self.attributes | {"entries": len(every)}, self.path)

    def read(self, entry: str) -> Array:
        """The array at a path of the tree. SnapshotError for one that is not there or damaged."""
        if entry not in self.arrays:
            raise SnapshotError(f"{self.path}: wanted one of its entries, received {entry!r}")
        return self.arrays[entry].fetch()


def check_format(snapshot: Tree) -> None:
    """SnapshotError unless the attributes are of a tree, and of a version that is known."""
    check_kind(snapshot.path, snapshot.attributes.get("format"))
    checked_version(snapshot.path, snapshot.attributes.get("version"))


def check_kind(where: str, kind: object) -> None:
    """SnapshotError unless the attribute `format` says that it is a snapshot of ours. where: the file."""
    if not isinstance(kind, str) or kind != "singa_lite":
        raise SnapshotError(f"{where}: wanted a snapshot of singa_lite, received format {kind!r}")


def checked_version(where: str, given: object) -> int:
    """The attribute `version`. SnapshotError for one that is not known. where: the file."""
    version = _number(where, "version", given)
    if not 1 <= version <= VERSION:
        raise SnapshotVersionError(f"{where}: wanted a snapshot of version 1 to {VERSION}, received {version}")
    return version


def number_of(snapshot: Tree, name: str) -> int:
    """An attribute, such as `step` or `entries`. SnapshotError unless it is a number from 0."""
    return _number(snapshot.path, name, snapshot.attributes.get(name))


def _number(where: str, name: str, value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise SnapshotError(f"{where}: attribute {name!r}: wanted a number from 0, received {value!r}")
    return value


# ---- weights alone: parameters and state, as other programs' files and `weights_only` have them. Such a tree lacks the
# optimizer's state and the keys of random numbers, which then stay as the net has them.

#: The attribute that marks such a tree, by True; it is kept in formats that could hold everything.
_MARK = "foreign"


def weights_tree(path: str, arrays: dict[str, LazyArray], wanted: Tree | None) -> Tree:
    """A marked tree of these arrays, with the `layers` of `wanted`. path: the file's name."""
    found = Tree(arrays, {"format": "singa_lite", "version": VERSION, "entries": len(arrays), _MARK: True}, path)
    layers = None if wanted is None else wanted.attributes.get("layers")
    if layers is not None:
        found.attributes["layers"] = layers
    return found


def mark_weights(contents: Tree) -> None:
    """Mark a tree as one of weights alone."""
    contents.attributes[_MARK] = True


def only_weights(contents: Tree) -> Tree:
    """A marked tree of the parameters and the state in a tree, but for the keys of random numbers."""
    arrays = {
        path: lazy
        for path, lazy in contents.arrays.items()
        if path.startswith(("parameters/", "state/")) and not is_random_key(path, lazy)
    }
    left_out = ("optimizer", "step", "config", "config_missing")
    attributes = {name: value for name, value in contents.attributes.items() if name not in left_out}
    found = Tree(arrays, attributes | {"entries": len(arrays)}, contents.path)
    mark_weights(found)
    return found


def is_of_weights(attributes: Mapping[str, object]) -> bool:
    """Whether these attributes are of a marked tree."""
    return attributes.get(_MARK) is True


def is_random_key(path: str, lazy: LazyArray | ArraySpec) -> bool:
    """Whether it is the key of a layer's random numbers, which says nothing of what the layer has learnt."""
    is_named = path.startswith("state/") and path.endswith("/random")
    return is_named and (lazy.shape, lazy.dtype) == ((3,), np.dtype(np.uint64))


def random_state(present: Collection[str], wanted: Tree | None) -> dict[str, LazyArray]:
    """The keys of random numbers in `wanted`, but for paths that are `present`."""
    if wanted is None:
        return {}
    return {path: lazy for path, lazy in wanted.arrays.items() if is_random_key(path, lazy) and path not in present}


def completed(found: Tree, wanted: Tree) -> Tree:
    """A marked tree with the random state of `wanted` that it lacks. Any other tree is given back as it is."""
    missing = random_state(found.arrays, wanted) if is_of_weights(found.attributes) else {}
    if not missing:
        return found
    attributes = dict(found.attributes)
    entries = attributes.get("entries")
    if type(entries) is int:
        attributes["entries"] = entries + len(missing)
    return replace(found, arrays=found.arrays | missing, attributes=attributes)
