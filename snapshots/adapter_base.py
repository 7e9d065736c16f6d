"""The base of a net with adapters: the parameters that do not train. Checkpoints leave it out and name it by digest."""

from __future__ import annotations

import json
from hashlib import sha256
from weakref import WeakKeyDictionary

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.manifest import Attribute, digest
from singa_lite.snapshots.stored_parameters import lazy
from singa_lite.snapshots.tree import Tree
from singa_lite.tensor import Tensor, release_pages, to_numpy
from singa_lite.training.trained_net import TrainedNet

#: Attributes of a tree without the base: the SHA-256 that `base_digest` gives; options of the adapters by layer, JSON.
BASE, ADAPTERS = "base", "adapters"
#: Bytes of a mapped file that are read at once.
_AT_ONCE = 1 << 22

#: Digests by what is written several times over the same base, such as a training run.
_known: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def base_parameters(net: TrainedNet) -> dict[str, Tensor]:
    """The base by paths as in a tree, quantised weights below "frozen/"; nothing for a net without adapters."""
    if all(layer.lora is None for layer in net.all_layers().values()):
        return {}
    frozen = {f"frozen/{name}": tensor for name, tensor in net.frozen().items()}
    parameters = {f"parameters/{name}": tensor for name, tensor in net.parameters().items()}
    return frozen | {path: tensor for path, tensor in parameters.items() if not tensor.stores_grad}


def frozen_bytes(tensor: Tensor) -> Array:
    """The bytes of a frozen tensor: a view where the host reads them, so that a mapped file is not copied."""
    array = tensor.array
    return array if isinstance(array, np.ndarray) else to_numpy(tensor)


def base_digest(net: TrainedNet) -> str:
    """The SHA-256 of names, shapes, dtypes and bytes of the base, in hexadecimal digits."""
    whole = sha256()
    for path, tensor in sorted(base_parameters(net).items()):
        stored = lazy(tensor)
        found = _frozen_digest(tensor) if path.startswith("frozen/") else digest(stored.fetch())
        whole.update(f"{path} {stored.shape} {stored.dtype.name} {found}\n".encode())
    return whole.hexdigest()


def _frozen_digest(tensor: Tensor) -> str:
    """`digest` of the bytes of a frozen tensor, of whose mapped file few pages are in memory at a time."""
    found, blocks = sha256(), np.ascontiguousarray(frozen_bytes(tensor))
    rows = max(1, _AT_ONCE // blocks.shape[1])
    for first in range(0, len(blocks), rows):
        found.update(blocks[first : first + rows].data)
        release_pages(blocks)
    return found.hexdigest()


def without_base(contents: Tree, net: TrainedNet, run: object) -> Tree:
    """The tree without the base, which it names. run: during which the base stays as it is, so it is read once."""
    base = base_parameters(net)
    if not base:
        return contents
    if run not in _known:
        _known[run] = base_digest(net)
    arrays = {path: lazy for path, lazy in contents.arrays.items() if path not in base}
    named: dict[str, Attribute] = {"entries": len(arrays), BASE: _known[run], ADAPTERS: _adapters_of(net)}
    return Tree(arrays, contents.attributes | named, contents.path)


def _adapters_of(net: TrainedNet) -> str:
    """JSON of {path: (rank, alpha, dropout)} of the layers that have an adapter."""
    return json.dumps({path: layer.lora for path, layer in net.all_layers().items() if layer.lora is not None})


def absent_paths(net: TrainedNet, snapshot: Tree) -> frozenset[str]:
    """The paths of the net's parameters that the file leaves out. SnapshotError where its base is not the net's."""
    wanted = snapshot.attributes.get(BASE)
    if wanted is None:
        return frozenset()
    base = base_parameters(net)
    theirs, ours = snapshot.attributes.get(ADAPTERS), _adapters_of(net)
    if theirs != ours:
        raise SnapshotError(
            f"{snapshot.path}: wanted a net with the adapters that the file holds, (rank, alpha, dropout) by layer, "
            f"{theirs!s:.200}, received {ours:.200}; add_lora with the same options makes them"
        )
    found = base_digest(net)
    if found != wanted:
        raise SnapshotError(
            f"{snapshot.path}: wanted the base that the adapters were trained over, with SHA-256 {wanted!s:.64}, "
            f"received one with {found}; load the base's weights first"
        )
    return frozenset(base)
