"""The nets of a training run: the one that `fit` trains, and others of a user's step, below "training/nets/"."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import net_tree
from singa_lite.snapshots.adapter_base import base_parameters
from singa_lite.snapshots.tree import LazyArray, Tree
from singa_lite.tensor import Tensor
from singa_lite.training.fit import Training
from singa_lite.training.trained_net import TrainedNet

#: Before "<name>/<path of the net's tree>".
_NETS = "training/nets/"
#: JSON in an array of bytes: attributes of the net's tree.
_ATTRIBUTES = "attributes"
#: What of them says how the net is made, which a script does again; and the most bytes of the others.
_LEFT_OUT, _MOST = ("config", "config_missing", "layers", "wiring"), 1 << 16


def arrays(net: TrainedNet) -> dict[str, LazyArray]:
    """The entries of the other nets as they stand. SnapshotError after an unfinished step."""
    found: dict[str, LazyArray] = {}
    for name, other in _other_nets(net).items():
        tree = net_tree.of_net(other)
        kept = {key: value for key, value in tree.attributes.items() if key not in _LEFT_OUT}
        text = np.frombuffer(json.dumps(kept).encode(), np.uint8)
        found[f"{_NETS}{name}/{_ATTRIBUTES}"] = LazyArray(text.shape, text.dtype, text.copy)
        found |= {f"{_NETS}{name}/{path}": lazy for path, lazy in tree.arrays.items()}
    return found


def tensors(net: TrainedNet) -> dict[str, Tensor]:
    """All tensors that a checkpoint holds, by path: of the net, but for the base of adapters, and of the others."""
    base = base_parameters(net)
    found = {path: tensor for path, tensor in net_tree.tensors(net).items() if path not in base}
    for name, other in _other_nets(net).items():
        found |= {f"{_NETS}{name}/{path}": tensor for path, tensor in net_tree.tensors(other).items()}
    return found


def restore(net: TrainedNet, snapshot: Tree, last_check: Callable[[], object]) -> None:
    """Put what a checkpoint holds into the net and the others; nothing changes unless all of them fit."""
    others = _other_nets(net)
    found = {path.removeprefix(_NETS).partition("/")[0] for path in snapshot.arrays if path.startswith(_NETS)}
    if found != set(others):
        raise SnapshotError(
            f"{snapshot.path}: wanted a checkpoint of compile(nets={sorted(others)}), received one of {sorted(found)}"
        )
    _restore_all([(net, snapshot), *((other, _tree(snapshot, name)) for name, other in others.items())], last_check)


def _restore_all(pairs: list[tuple[TrainedNet, Tree]], last_check: Callable[[], object]) -> None:
    """All checks come before the first change, as each net's last check is the others' whole restoring."""
    (net, tree), *left = pairs
    after = (lambda: _restore_all(left, last_check)) if left else last_check
    net_tree.restore(net, tree, optimizer=True, last_check=after)


def _tree(snapshot: Tree, name: str) -> Tree:
    before = f"{_NETS}{name}/"
    arrays = {path.removeprefix(before): lazy for path, lazy in snapshot.arrays.items() if path.startswith(before)}
    held = arrays.pop(_ATTRIBUTES, None)
    where = f"{snapshot.path}: net {name!r}"
    if held is None or held.dtype != np.uint8 or held.nbytes > _MOST:
        raise SnapshotError(f"{where}: wanted its attributes, received none, or more than {_MOST} bytes")
    try:
        attributes = json.loads(held.fetch().tobytes())
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"{where}: attributes: {error}") from error
    if not isinstance(attributes, Mapping):
        raise SnapshotError(f"{where}: wanted attributes by name, received {type(attributes).__name__}")
    return Tree(arrays, dict(attributes), where)


def _other_nets(net: TrainedNet) -> dict[str, TrainedNet]:
    return {name: other for name, other in net.trainer.nets.items() if isinstance(other, TrainedNet)}


def net_of(training: Training) -> TrainedNet:
    """The net. TypeError for anything else that trains, which no format can hold."""
    if not isinstance(training.net, TrainedNet):
        raise TypeError(f"checkpoint: wanted a FeedForwardNet, received {type(training.net).__name__}")
    return training.net


def steps_of(training: Training) -> int:
    """How many training steps have begun; one for all batches of a group, see `compile(accumulate=)`."""
    optimizer = training.net.optimizer
    return 0 if optimizer is None else optimizer.step


def is_between_updates(training: Training) -> bool:
    """Whether a group of batches has begun and not ended."""
    optimizer = training.net.optimizer
    return optimizer is not None and optimizer.gathering.done > 0
