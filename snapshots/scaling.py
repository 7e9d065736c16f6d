"""What a snapshot has of steps: the scale of a loss, `loss_scale=`, and the random state of `compile(step=)`."""

from __future__ import annotations

import numpy as np

from singa_lite.optimizer.loss_scale import LossScale
from singa_lite.snapshots.tree import ArraySpec, Tree
from singa_lite.tensor import Tensor
from singa_lite.training.stepping_net import SteppingNet
from singa_lite.training.steps.own_step import STEP_RANDOM

#: {path: shape and dtype}. Parameters' state has longer paths. A net without them lets them be.
SPECS = {
    **{f"optimizer/{name}": ArraySpec((), dtype) for name, dtype in LossScale.SLOTS},
    f"optimizer/{STEP_RANDOM}": ArraySpec((3,), np.dtype(np.uint64)),
}


def tensors(net: SteppingNet) -> dict[str, Tensor]:
    """By path; none where the net's loss is not scaled and its step the built-in one."""
    return {f"optimizer/{name}": tensor for name, tensor in (net.scaling_state() | net.step_state()).items()}


def scaling_specs(net: SteppingNet, snapshot: Tree) -> dict[str, ArraySpec]:
    """What is to be read for this net. A file without any was written by a net that had none: it begins anew."""
    wanted = {path: SPECS[path] for path in tensors(net)}
    return wanted if any(path in snapshot.arrays for path in wanted) else {}
