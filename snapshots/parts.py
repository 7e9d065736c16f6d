"""Parts of a snapshot into a net: some layers alone, or all that fits; and what was left out."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from singa_lite.common.errors import SnapshotError
from singa_lite.common.notice import warn
from singa_lite.snapshots.net_tree import check_entries, of_layers, without_constants
from singa_lite.snapshots.stored_parameters import as_floats, spec
from singa_lite.snapshots.tree import ArraySpec, Tree, check_format
from singa_lite.training.trained_net import TrainedNet

#: How paths of a net's tensors begin, and of what a partial load leaves where it is.
_OF_LAYERS, _OF_TRAINING = ("parameters/", "state/"), ("optimizer/", "training/")


def restore(net: TrainedNet, snapshot: Tree, layers: Collection[str] | None, strict: bool) -> LeftOut:
    """Put a file's values of parameters and state into the net's tensors; the optimizer stays as it is.

    layers: paths of those that are read, with what is in them; None: all. strict: SnapshotError for a tensor of these
    that is missing or has another shape or dtype; the file may hold more where layers are named. All that is read is
    read once before the net changes. Forgets an unfinished step.
    """
    check_format(snapshot)
    snapshot = without_constants(net, as_floats(snapshot))
    if not snapshot.arrays:
        raise SnapshotError(f"{snapshot.path}: wanted a file with arrays, received an empty one")
    tensors = {path: t for path, t in of_layers(net).items() if layers is None or _belongs_to(path, layers)}
    specs = {path: spec(t) for path, t in tensors.items()}
    found = _compared(snapshot, specs)
    if strict:
        check_entries(snapshot, specs, found.unused if layers is None else ())
    fitting = [path for path in tensors if path not in (*found.missing, *found.differing)]
    left = LeftOut(*(tuple(map(_name, paths)) for paths in found))
    wanted, fit = ({path.partition("/")[0] for path in paths} for paths in (tensors, fitting))
    if "parameters" in wanted - fit:
        warn(
            f"{snapshot.path}: wanted parameters that fit the net, received none: {len(left.missing)} are missing, "
            f"{len(left.differing)} have another shape or dtype, and unused are {left.unused[:8]}"
        )
    for path in fitting:
        snapshot.read(path)
    net.trainer.begin_restore()
    for path in fitting:
        tensors[path].copy_from_numpy(snapshot.read(path))
    net.trainer.discard_step()
    return left._replace(unused=(*left.unused, *snapshot.left_out))


def _name(path: str) -> str:
    """Without the branch of the tree; an entry that is no tensor of a net, as in another program's file, has none."""
    return path.partition("/")[2] if path.startswith(_OF_LAYERS) else path


def _belongs_to(path: str, layers: Collection[str]) -> bool:
    name = path.partition("/")[2]
    return any(name.startswith(f"{layer}/") for layer in layers)


def _compared(snapshot: Tree, wanted: dict[str, ArraySpec]) -> LeftOut:
    """By whole paths of the tree."""
    there = snapshot.specs
    values = [path for path in there if not path.startswith(_OF_TRAINING)]
    return LeftOut(
        tuple(path for path in wanted if path not in there),
        tuple(path for path in wanted if path in there and there[path] != wanted[path]),
        tuple(path for path in values if path not in wanted),
    )


class LeftOut(NamedTuple):
    """Names of what `load` did not read. missing: tensors of the net, of the layers asked for, that the file lacks;
    differing: those that it has in another shape or dtype; unused: entries of the file that have no place there, by the
    file's own names where they are no layer's, the optimizer's state aside.
    """

    missing: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
