"""What was not sent of gradients, with `parallel.mpi(compress=)`, out of a checkpoint into each rank's place for it."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.sharded_state import RESTS
from singa_lite.snapshots.tree import Tree
from singa_lite.training.stepping_net import SteppingNet


def check(net: SteppingNet, snapshot: Tree) -> None:
    """SnapshotError for an entry that does not fit, or cannot be read. Nothing changes."""
    parameters = net.parameters()
    for path in _by_path(net, snapshot):
        rank, name = _parsed(path)
        spec = snapshot.specs[path]
        value = parameters.get(name)
        if not rank.isdecimal() or value is None or spec != (value.shape, value.dtype):
            raise SnapshotError(f"{snapshot.path}: received an entry {path!r} {spec}, for which there is no place")
        snapshot.read(path)


def restore(net: SteppingNet, snapshot: Tree) -> None:
    """Restores each rank's rest of the gradients from a snapshot. If it is of another number of ranks, each takes an
    equal share of what all had, so that nothing of the gradients is lost. Zeros where the file has none.
    """
    if net.together is None:
        return
    net.together.clear_rests()
    paths, ranks = _by_path(net, snapshot), net.together.ranks
    count = 1 + max((int(_parsed(path)[0]) for path in paths), default=-1)
    for name, value in net.parameters().items():
        of_name = [path for path in paths if _parsed(path)[1] == name]
        if count == ranks.size:
            of_name = [path for path in of_name if int(_parsed(path)[0]) == ranks.rank]
        if of_name:
            share = 1 if count == ranks.size else ranks.size
            net.together.rest_of(name, value).copy_from_numpy(_mean(snapshot, of_name, share))


def _mean(snapshot: Tree, paths: list[str], share: int) -> Array:
    total = np.array(snapshot.read(paths[0]))
    for path in paths[1:]:
        total += snapshot.read(path)
    return total if share == 1 else total / total.dtype.type(share)


def _by_path(net: SteppingNet, snapshot: Tree) -> list[str]:
    """Those of the file, where this net takes any."""
    keeps = net.together is not None and net.together.ranks.compress is not None
    return [path for path in snapshot.arrays if keeps and path.startswith(RESTS)]


def _parsed(path: str) -> tuple[str, str]:
    """The rank, as text, and the parameter."""
    rank, _, name = path.removeprefix(RESTS).partition("/")
    return rank, name
