"""Snapshot files of all formats: the net, checkpoints and the command line use this module alone.

Each format is a module or a folder beside this file; `table` has the suffixes of each.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from singa_lite.common import checks
from singa_lite.common.errors import SnapshotError
from singa_lite.common.keywords import explains_keywords
from singa_lite.snapshots import net_tree, parts, sharded_state
from singa_lite.snapshots.formats import foreign
from singa_lite.snapshots.formats.table import Format, Save
from singa_lite.snapshots.formats.table import Path as Path
from singa_lite.snapshots.formats.table import of_path as of_path
from singa_lite.snapshots.parts import LeftOut
from singa_lite.snapshots.stored_parameters import as_floats
from singa_lite.snapshots.tree import Tree, completed, is_of_weights, only_weights
from singa_lite.training.trained_net import TrainedNet


def _is_net(where: str, given: object) -> None:
    if not isinstance(given, TrainedNet):
        raise TypeError(f"{where}: wanted a FeedForwardNet, received {checks.kind_of(given)}")


@explains_keywords(net=_is_net, weights_only=checks.flag)
def save(net: TrainedNet, path: Path, *, weights_only: bool = False, **options: object) -> None:
    """Writes the net, in the format of the path's suffix. SnapshotError after an unfinished step, and as for `write`.

    Of several processes rank 0 writes; see `sharded_state.written`.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> snapshots.save(net, "net.npz")  # the same as net.save("net.npz")
    """

    def work(held: sharded_state.ShardedState) -> None:
        write(net_tree.of_net(net).with_more(held.state()), path, weights_only=weights_only, **options)

    sharded_state.written(net, "save", work, with_state=not weights_only)


def write(contents: Tree, path: Path, *, weights_only: bool = False, **options: object) -> None:
    """Write a tree. SnapshotError for a format that is only read, and for what cannot be written or read back.

    weights_only: parameters and state alone, without random keys; PyTorch's `load_state_dict` takes such a .safetensors
    file.
    """
    chosen = of_path(path, options)
    if not chosen.is_written:
        raise SnapshotError(f"{os.fsdecode(path)}: {chosen.name} files are only read; write .h5, .safetensors or .npz")
    contents = only_weights(contents) if weights_only else contents
    contents = as_floats(contents) if "bfloat16" in chosen.dtypes else contents
    for entry, lazy in contents.arrays.items():
        if not chosen.can_hold(lazy.dtype):
            where, wanted = f"{os.fsdecode(path)}: entry {entry!r}", ", ".join(chosen.dtypes)
            raise SnapshotError(f"{where}: wanted one of {wanted}, in the machine's byte order, received {lazy.dtype}")
    writer(path)(contents, path, **options)


def writer(path: Path) -> Save:
    """The format's `save` for a file of this name, without the checks of `write`. Its libraries are loaded then."""
    return of_path(path).save


@explains_keywords(
    net=_is_net, optimizer=checks.or_none(checks.flag), layers=checks.or_none(checks.names), strict=checks.flag
)
def load(
    net: TrainedNet,
    path: Path,
    optimizer: bool | None = None,
    layers: Collection[str] | None = None,
    strict: bool = True,
    **options: object,
) -> LeftOut:
    """Reads the net, as `net_tree.restore` does, or parts of it, as `parts.restore` does. optimizer: None: if the net
    has one and the file has its state; ValueError if it is wanted beside parts.

    A file that can hold none, as `holds_optimizer` says, leaves the optimizer as it is. One that Keras wrote warns of
    layers that compute otherwise there.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.save("net.npz")
    >>> snapshots.load(net, "net.npz")  # the same as net.load("net.npz")
    LeftOut(missing=(), differing=(), unused=())
    """
    of_file(path, options)  # raises for wrong arguments before the net is looked at
    if optimizer and (layers is not None or not strict):
        raise ValueError("load optimizer: wanted all of the net beside it, received layers= or strict=False")
    wanted = as_floats(net_tree.of_net(net, whole_step=False))
    wanted.is_partial = layers is not None or not strict
    with opened(path, wanted, **options) as found:
        left = LeftOut()
        if wanted.is_partial:
            left = parts.restore(net, found, layers, strict)
        else:
            state = False if optimizer is None and not holds_optimizer(path, found) else optimizer
            net_tree.restore(net, found, state)
        if of_path(path).module == "keras.weights" and is_of_weights(found.attributes):
            from singa_lite.snapshots.formats.keras import differences  # here, as only files of Keras need it

            differences.warn_of(net, wanted, os.fsdecode(path))
    return left


def of_file(path: Path, options: Mapping[str, object] | None = None) -> Format:
    """The format of a file that is read, as `of_path`; the SnapshotError for another one says what the file is."""
    with foreign.explained(path):
        return of_path(path, options)


def holds_optimizer(path: Path, found: Tree) -> bool:
    """Whether the file can hold the optimizer's state: one of another program, or of weights alone, cannot."""
    return of_path(path).has_optimizer and not is_of_weights(found.attributes)


@contextmanager
def opened(path: Path, wanted: Tree | None = None, **options: object) -> Iterator[Tree]:
    """A file as a tree, its arrays read when they are asked for, while it is open.

    wanted: the tree that is asked for. Its random state is taken where the file, of another program, lacks it. The
    SnapshotError for a file that its name's format cannot read says what it is, and what to do.
    """
    with ExitStack() as stack:
        with foreign.explained(path):
            found = stack.enter_context(of_path(path, options).opened(path, wanted, **options))
        yield found if wanted is None else completed(found, wanted)
