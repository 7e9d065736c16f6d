"""The one door to snapshot files: the net, checkpoints and the command line come in here, whatever the format.

Each format is a module or a folder beside this file; `table` says which suffix is whose.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from singa_lite.errors import SnapshotError
from singa_lite.net import FeedForwardNet
from singa_lite.snapshots import foreign, tree
from singa_lite.snapshots.formats.table import Path
from singa_lite.snapshots.formats.table import of_path as of_path
from singa_lite.snapshots.tree import Tree


def save(net: FeedForwardNet, path: Path, *, weights_only: bool = False, **options: Any) -> None:
    """Write the net, in the format of the path's suffix. SnapshotError after an unfinished step, and as `write`.

    weights_only: parameters and running statistics alone; PyTorch's `load_state_dict` takes such a .safetensors file.
    """
    contents = tree.of_net(net)
    write(foreign.weights(contents) if weights_only else contents, path, **options)


def write(contents: Tree, path: Path, **options: Any) -> None:
    """Write a tree. SnapshotError for a format that is only read, and for what cannot be written, or read again."""
    chosen = of_path(path, options)
    if not chosen.is_written:
        raise SnapshotError(f"{os.fsdecode(path)}: {chosen.name} files are only read; write .h5, .safetensors or .npz")
    for entry, lazy in contents.arrays.items():
        if not chosen.takes(lazy.dtype):
            where, wanted = f"{os.fsdecode(path)}: entry {entry!r}", ", ".join(chosen.dtypes)
            raise SnapshotError(f"{where}: wanted one of {wanted}, in the machine's byte order, received {lazy.dtype}")
    chosen.load_module().save(contents, path, **options)


def load(net: FeedForwardNet, path: Path, optimizer: bool | None = None, **options: Any) -> None:
    """Read the net, as `tree.restore` says. optimizer: None: if the net has one, and files of the kind have its state.

    Those of other programs, and of weights alone, have none; it then stays as it is.
    """
    chosen = of_path(path, options)
    with opened(path, tree.of_net(net, whole_step=False), **options) as source:
        if optimizer is None and (not chosen.has_optimizer or foreign.is_marked(source.attributes)):
            optimizer = False
        tree.restore(net, source, optimizer)


@contextmanager
def opened(path: Path, like: Tree | None = None, **options: Any) -> Iterator[Tree]:
    """A file's contents by the tree's paths, read as they are asked for.

    like: the tree that is wanted; where the file is not ours, its random state stands for what the file lacks.
    """
    with of_path(path, options).load_module().opened(path, like, **options) as source:
        yield source if like is None else foreign.completed(source, like)
