"""What a snapshot has of the scale of a loss: `compile(loss_scale=)`."""

from __future__ import annotations

from singa_lite.net import FeedForwardNet
from singa_lite.optimizer.loss_scale import LossScale
from singa_lite.snapshots.tree import ArraySpec, Tree
from singa_lite.tensor import Tensor

#: {path: shape and dtype}. Parameters' state has longer paths. A net whose loss is not scaled lets them be.
SPECS = {f"optimizer/{name}": ArraySpec((), dtype) for name, dtype in LossScale.SLOTS}


def tensors(net: FeedForwardNet) -> dict[str, Tensor]:
    """By path; none where the net's loss is not scaled."""
    return {f"optimizer/{name}": tensor for name, tensor in net.scaling_state().items()}


def wanted(net: FeedForwardNet, snapshot: Tree) -> dict[str, ArraySpec]:
    """What is to be read for this net. A file without any was written by a net that scaled nothing: it begins anew."""
    return SPECS if net.scaling_state() and any(path in snapshot.arrays for path in SPECS) else {}
