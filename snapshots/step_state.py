"""The state of steps in a snapshot: a group of batches that has begun, a loss's scale, a user's step's random state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from singa_lite.common.errors import SnapshotError
from singa_lite.device import Device
from singa_lite.optimizer import Optimizer
from singa_lite.optimizer.gradient_accumulation import COUNTED, GradientAccumulation
from singa_lite.optimizer.loss_scale import LossScale
from singa_lite.snapshots import stored_parameters
from singa_lite.snapshots.manifest import Attribute
from singa_lite.snapshots.tree import ArraySpec, Tree
from singa_lite.tensor import Tensor
from singa_lite.training.steps.own_step import STEP_RANDOM
from singa_lite.training.trained_net import TrainedNet

#: The end of the path of a parameter's sum of gradients.
SUM = "/sum"
#: {path: shape and dtype}. Parameters' state has longer paths. A net without them lets them be.
STEP_SPECS = {
    **{f"optimizer/{name}": ArraySpec((), dtype) for name, dtype in LossScale.SLOTS},
    f"optimizer/{STEP_RANDOM}": ArraySpec((3,), np.dtype(np.uint64)),
}


def attributes(gathering: GradientAccumulation) -> dict[str, Attribute]:
    """Attributes of a group of batches that has begun. accumulate: batches of a group; accumulated: how many of them
    are in the sums, and positions: how many of theirs count, where they are weighed by these.
    """
    found: dict[str, Attribute] = {"accumulate": gathering.count, "accumulated": gathering.done}
    if COUNTED in gathering.sums:
        found["positions"] = int(gathering.sums[COUNTED])
    return found


def summed(optimizer: Optimizer, parameters: Collection[str]) -> list[str]:
    """Parameters that have a sum which counts."""
    gathering = optimizer.gathering
    return [name for name in parameters if name in gathering.sums] if gathering.done else []


def names(snapshot: Tree, parameters: Collection[str]) -> list[str]:
    """Parameters that the file has a sum of."""
    return [name for name in parameters if _path(name) in snapshot.arrays]


def specs(parameters: Mapping[str, Tensor], of: Sequence[str]) -> dict[str, ArraySpec]:
    """The entries of these parameters' sums."""
    return {_path(name): stored_parameters.spec(parameters[name]) for name in of}


def tensors(optimizer: Optimizer | None, of: Sequence[str]) -> dict[str, Tensor]:
    """These parameters' sums by path."""
    return {} if optimizer is None else {_path(name): optimizer.gathering.sums[name] for name in of}


def checked_done(snapshot: Tree, optimizer: Optimizer) -> int:
    """How many batches of a group are in the file's sums; 0 where none has begun.

    SnapshotError where the optimizer updates by another number of batches, or sums elsewhere.
    """
    done, count = snapshot.attributes.get("accumulated", 0), optimizer.gathering.count
    if not done:
        return 0
    kept = snapshot.attributes.get("accumulate")
    if not isinstance(done, int) or kept != count or not 0 < done < count:
        raise SnapshotError(
            f"{snapshot.path}: wanted a snapshot between updates, or within a group of compile(accumulate={count}), "
            f"received one after {done!r:.20} of {kept!r:.20} batches; compile with the file's, or "
            "load(path, optimizer=False), which takes parameters and state only"
        )
    has_sums = any(path.startswith("optimizer/") and path.endswith(SUM) for path in snapshot.arrays)
    if has_sums != optimizer.gathering.has_sums(optimizer):
        wanted, found = ("sums", "none") if not has_sums else ("none, as the momentum takes them in,", "sums")
        raise SnapshotError(
            f"{snapshot.path}: wanted {wanted} of gradients in the middle of a group of batches, received {found}; "
            "compile with the settings that the file was written by"
        )
    return done


def restore_positions(snapshot: Tree, optimizer: Optimizer, device: Device) -> None:
    """How many positions count in the group so far, as the file says."""
    count = snapshot.attributes.get("positions")
    if isinstance(count, int):
        optimizer.gathering.positions_on(device).copy_from_numpy(np.float64(count))


def _path(name: str) -> str:
    return f"optimizer/{name}{SUM}"


def step_tensors(net: TrainedNet) -> dict[str, Tensor]:
    """By path; none where the net's loss is not scaled and its step the built-in one."""
    return {f"optimizer/{name}": tensor for name, tensor in net.trainer.step_state().items()}


def step_specs(net: TrainedNet, snapshot: Tree) -> dict[str, ArraySpec]:
    """What is to be read for this net. A file without any was written by a net that had none: it begins anew."""
    wanted = {path: STEP_SPECS[path] for path in step_tensors(net)}
    return wanted if any(path in snapshot.arrays for path in wanted) else {}
