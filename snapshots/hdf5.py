"""The native format: the tree in an HDF5 file, a dataset an array, attributes on the root. Needs h5py."""

from __future__ import annotations

import os
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.net import FeedForwardNet
from singa_lite.snapshots import tree
from singa_lite.snapshots.atomic import replacing
from singa_lite.tensor import Shape, to_numpy

#: Groups within groups that a reader follows; ours has four.
_DEPTH = 16


def save(net: FeedForwardNet, path: str | os.PathLike[str]) -> None:
    """Write the net to `path`. One array at a time is copied to the host."""
    contents = tree.of_net(net)
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        file.attrs.update(contents.attributes)
        for name, tensor in contents.tensors.items():
            file.create_dataset(name, data=to_numpy(tensor))


def load(net: FeedForwardNet, path: str | os.PathLike[str], optimizer: bool | None = None) -> None:
    """Read the net from `path`. See `tree.restore`. SnapshotError for a file that is not HDF5 or is damaged."""
    name = os.fspath(path)
    try:
        file = h5py.File(name, "r")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SnapshotError(f"{name}: wanted a whole HDF5 file: {error}") from error
    with file:
        tree.restore(net, _File(name, file), optimizer)


class _File:
    """An open file as `tree.Source`."""

    def __init__(self, path: str, file: h5py.File) -> None:
        self.path = path
        self.shapes: dict[str, tuple[Shape, np.dtype[Any]]] = {}
        self._file = file
        try:
            self.attributes = {name: _plain(value) for name, value in file.attrs.items()}
            self._enter(file, "", 0)
        except (OSError, RuntimeError, KeyError) as error:
            if isinstance(error, SnapshotError):
                raise
            raise SnapshotError(f"{path}: damaged: {error}") from error

    def _enter(self, group: h5py.Group, prefix: str, depth: int) -> None:
        """Note all datasets below a group. Only what lies in this file itself is followed."""
        if depth > _DEPTH:
            raise SnapshotError(f"{self.path}: wanted groups at most {_DEPTH} deep, received {prefix!r}")
        for name in group:
            path = prefix + name
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise SnapshotError(f"{self.path}: entry {path!r}: wanted a dataset or group, received a link")
            member = group[name]
            if isinstance(member, h5py.Group):
                self._enter(member, f"{path}/", depth + 1)
            elif not isinstance(member, h5py.Dataset) or member.external or member.is_virtual:
                raise SnapshotError(f"{self.path}: entry {path!r}: wanted a dataset stored in this file")
            else:
                self.shapes[path] = member.shape, member.dtype

    def read(self, path: str) -> NDArray[Any]:
        """The array at a path. SnapshotError names it if the file does not hold its bytes."""
        try:
            array: NDArray[Any] = self._file[path][()]
        except (OSError, RuntimeError, KeyError) as error:
            raise SnapshotError(f"{self.path}: entry {path!r} cannot be read: {error}") from error
        return array


def _plain(value: Any) -> Any:
    """An attribute as a Python value."""
    return value.item() if isinstance(value, np.generic) else value
