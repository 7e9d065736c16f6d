"""Snapshot files of all formats: the net, checkpoints and the command line use this module alone.

Each format is a module or a folder beside this file; `table` has the suffixes of each.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from singa_lite.common import checks
from singa_lite.common.elsewhere import told
from singa_lite.errors import SnapshotError
from singa_lite.net import FeedForwardNet
from singa_lite.net_parts.left_out import LeftOut
from singa_lite.snapshots import apart, net_tree, parts, weights_tree
from singa_lite.snapshots.formats.table import Path as Path
from singa_lite.snapshots.formats.table import Save
from singa_lite.snapshots.formats.table import of_path as of_path
from singa_lite.snapshots.tree import Tree


def _is_net(where: str, given: object) -> None:
    if not isinstance(given, FeedForwardNet):
        raise TypeError(f"{where}: wanted a FeedForwardNet, received {checks.kind_of(given)}")


@told(net=_is_net, weights_only=checks.flag)
def save(net: FeedForwardNet, path: Path, *, weights_only: bool = False, **options: object) -> None:
    """Write the net, in the format of the path's suffix. SnapshotError after an unfinished step, and as for `write`.

    Of several processes rank 0 writes; see `apart.written`.
    """

    def work(held: apart.Apart) -> None:
        write(net_tree.of_net(net).with_more(held.state()), path, weights_only=weights_only, **options)

    apart.written(net, "save", work, with_state=not weights_only)


def write(contents: Tree, path: Path, *, weights_only: bool = False, **options: object) -> None:
    """Write a tree. SnapshotError for a format that is only read, and for what cannot be written or read back.

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


def writer(path: Path) -> Save:
    """The format's `save` for a file of this name, without the checks of `write`. Its libraries are loaded then."""
    return of_path(path).save


@told(net=_is_net, optimizer=checks.or_none(checks.flag), layers=checks.or_none(checks.names), strict=checks.flag)
def load(
    net: FeedForwardNet,
    path: Path,
    optimizer: bool | None = None,
    layers: Collection[str] | None = None,
    strict: bool = True,
    **options: object,
) -> LeftOut:
    """Read the net, as `net_tree.restore` does, or parts of it, as `parts.restore` does. optimizer: None: if the net
    has one and the file has its state; ValueError if it is wanted beside parts.

    A file that can hold none, as `holds_optimizer` says, leaves the optimizer as it is.
    """
    of_path(path, options)  # raises for wrong arguments before the net is looked at
    if optimizer and (layers is not None or not strict):
        raise ValueError("load optimizer: wanted all of the net beside it, received layers= or strict=False")
    with opened(path, net_tree.of_net(net, whole_step=False), **options) as found:
        if layers is not None or not strict:
            return parts.restore(net, found, layers, strict)
        if optimizer is None and not holds_optimizer(path, found):
            optimizer = False
        net_tree.restore(net, found, optimizer)
        return LeftOut()


def holds_optimizer(path: Path, found: Tree) -> bool:
    """Whether the file can hold the optimizer's state: one of another program, or of weights alone, cannot."""
    return of_path(path).has_optimizer and not weights_tree.is_marked(found.attributes)


@contextmanager
def opened(path: Path, wanted: Tree | None = None, **options: object) -> Iterator[Tree]:
    """A file as a tree, its arrays read when they are asked for, while it is open.

    wanted: the tree that is asked for. Its random state is taken where the file, of another program, lacks it.
    """
    with of_path(path, options).opened(path, wanted, **options) as found:
        yield found if wanted is None else weights_tree.completed(found, wanted)
