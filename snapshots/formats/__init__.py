"""The one door to snapshot files: the net, checkpoints and the command line come in here, whatever the format.

Each format is a module or a folder beside this file; `table` says which suffix is whose.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from singa_lite.errors import SnapshotError
from singa_lite.net import FeedForwardNet
from singa_lite.snapshots import net_tree, weights_tree
from singa_lite.snapshots.formats.table import Path
from singa_lite.snapshots.formats.table import of_path as of_path
from singa_lite.snapshots.tree import Tree


def save(net: FeedForwardNet, path: Path, *, weights_only: bool = False, **options: Any) -> None:
    """Write the net, in the format of the path's suffix. SnapshotError after an unfinished step, and as `write`."""
    write(net_tree.of_net(net), path, weights_only=weights_only, **options)


def write(contents: Tree, path: Path, *, weights_only: bool = False, **options: Any) -> None:
    """Write a tree. SnapshotError for a format that is only read, and for what cannot be written, or read again.

    weights_only: parameters and running statistics alone; PyTorch's `load_state_dict` takes such a .safetensors file.
    """
    chosen = of_path(path, options)
    if not chosen.is_written:
        raise SnapshotError(f"{os.fsdecode(path)}: {chosen.name} files are only read; write .h5, .safetensors or .npz")
    contents = weights_tree.of_tree(contents) if weights_only else contents
    for entry, lazy in contents.arrays.items():
        if not chosen.takes(lazy.dtype):
            where, wanted = f"{os.fsdecode(path)}: entry {entry!r}", ", ".join(chosen.dtypes)
            raise SnapshotError(f"{where}: wanted one of {wanted}, in the machine's byte order, received {lazy.dtype}")
    writer(path)(contents, path, **options)


def writer(path: Path) -> Callable[..., None]:
    """What writes a tree to a file of this name, unchecked. The libraries that it needs are then loaded."""
    save: Callable[..., None] = of_path(path).load_module().save
    return save


def load(net: FeedForwardNet, path: Path, optimizer: bool | None = None, **options: Any) -> None:
    """Read the net, as `net_tree.restore` says. optimizer: None: if the net has one and the file has its state.

    A file that `holds_optimizer` says has no place for it leaves it as it is.
    """
    of_path(path, options)  # what is wrong with the call is told before what is wrong with the net
    with opened(path, net_tree.of_net(net, whole_step=False), **options) as found:
        if optimizer is None and not holds_optimizer(path, found):
            optimizer = False
        net_tree.restore(net, found, optimizer)


def holds_optimizer(path: Path, found: Tree) -> bool:
    """Whether the file has a place for the optimizer's state: one of another program, or of weights alone, has none."""
    return of_path(path).has_optimizer and not weights_tree.is_marked(found.attributes)


@contextmanager
def opened(path: Path, wanted: Tree | None = None, **options: Any) -> Iterator[Tree]:
    """A file as a tree, its arrays read when they are asked for, while it is open.

    like: the tree that is wanted; where the file is not ours, its random state stands for what the file lacks.
    """
    with of_path(path, options).load_module().opened(path, wanted, **options) as found:
        yield found if wanted is None else weights_tree.completed(found, wanted)
