"""The base of a net with adapters: the parameters that do not train. Checkpoints leave it out and name it by digest."""

from __future__ import annotations

from hashlib import sha256
from weakref import WeakKeyDictionary

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.manifest import digest
from singa_lite.snapshots.tree import Tree
from singa_lite.tensor import Tensor, to_numpy
from singa_lite.training.trained_net import TrainedNet

#: The attribute of a tree without the base: the SHA-256 that `base_digest` gives.
BASE = "base"

#: Digests by what is written several times over the same base, such as a training run.
_known: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def base_parameters(net: TrainedNet) -> dict[str, Tensor]:
    """The base by paths as in a tree, quantised weights below "frozen/"; nothing for a net without adapters."""
    if not has_adapters(net):
        return {}
    frozen = {f"frozen/{name}": tensor for name, tensor in net.frozen().items()}
    parameters = {f"parameters/{name}": tensor for name, tensor in net.parameters().items()}
    return frozen | {path: tensor for path, tensor in parameters.items() if not tensor.stores_grad}


def has_adapters(net: TrainedNet) -> bool:
    """Whether a layer of the net has an adapter."""
    return any(layer.lora is not None for layer in net.all_layers().values())


def base_digest(net: TrainedNet) -> str:
    """The SHA-256 of names, shapes, dtypes and bytes of the base, in hexadecimal digits."""
    whole = sha256()
    for path, tensor in sorted(base_parameters(net).items()):
        array = to_numpy(tensor)
        whole.update(f"{path} {array.shape} {array.dtype.name} {digest(array)}\n".encode())
    return whole.hexdigest()


def without_base(contents: Tree, net: TrainedNet, run: object) -> Tree:
    """The tree without the base, which it names. run: during which the base stays as it is, so it is read once."""
    base = base_parameters(net)
    if not base:
        return contents
    if run not in _known:
        _known[run] = base_digest(net)
    arrays = {path: lazy for path, lazy in contents.arrays.items() if path not in base}
    return Tree(arrays, contents.attributes | {"entries": len(arrays), BASE: _known[run]}, contents.path)


def absent_paths(net: TrainedNet, snapshot: Tree) -> frozenset[str]:
    """The paths of the net's parameters that the file leaves out. SnapshotError where its base is not the net's."""
    wanted = snapshot.attributes.get(BASE)
    if wanted is None:
        return frozenset()
    base = base_parameters(net)
    if not base:
        raise SnapshotError(
            f"{snapshot.path}: wanted a net with adapters, as the file holds adapters alone, received one without; "
            "net.add_lora(...) with the options of the file's makes them"
        )
    found = base_digest(net)
    if found != wanted:
        raise SnapshotError(
            f"{snapshot.path}: wanted the base that the adapters were trained over, with SHA-256 {wanted!s:.64}, "
            f"received one with {found}; load the base's weights first"
        )
    return frozenset(base)
