"""The tree that all formats hold: arrays by path, each made when it is asked for, and attributes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import SnapshotError, SnapshotVersionError
from singa_lite.snapshots.manifest import Attribute
from singa_lite.tensor import Shape

#: The version of trees that are written; a reader refuses a higher one. Since 2 there are `layers` and a manifest.
VERSION = 2

#: The attribute that names arrays which a reader left out, as JSON.
LEFT_OUT = "left_out"


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
    is_partial: of a tree that is wanted, whether a file may have other arrays, or lack some.
    """

    arrays: dict[str, LazyArray]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    path: str = ""
    is_partial: bool = False

    @property
    def specs(self) -> dict[str, ArraySpec]:
        """Shape and dtype of each array."""
        return {entry: ArraySpec(lazy.shape, lazy.dtype) for entry, lazy in self.arrays.items()}

    @property
    def left_out(self) -> list[str]:
        """The names of arrays in another program's file that its reader left out."""
        try:
            return list(map(str, json.loads(str(self.attributes.get(LEFT_OUT)))))
        except (TypeError, ValueError, RecursionError):  # it says nothing
            return []

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


def step_of(snapshot: Tree) -> int:
    """The attribute `step`, the optimizer's. SnapshotError unless it is a number from 0."""
    return _number(snapshot.path, "step", snapshot.attributes.get("step"))


def entries_of(snapshot: Tree) -> int:
    """The attribute `entries`, how many arrays were written. SnapshotError unless it is a number from 0."""
    return _number(snapshot.path, "entries", snapshot.attributes.get("entries"))


def _number(where: str, name: str, value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise SnapshotError(f"{where}: attribute {name!r}: wanted a number from 0, received {value!r}")
    return value
