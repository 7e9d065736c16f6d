"""The settings that a net was compiled with, as text: runs, and ranks, whose texts are equal compute alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from singa_lite.training.settings import ALIKE
from singa_lite.training.stepping_net import SteppingNet

#: Options of `parallel.mpi` that they are to have alike.
_OF_RANKS = ("bucket_bytes", "in_flight_bytes", "shard", "sync", "check_every")


def settings(net: SteppingNet) -> dict[str, str]:
    """What the net was compiled with, as text: the optimizer's settings, its schedule and rules, losses and metrics."""
    optimizer, found = net.optimizer, dict[str, object]()
    if optimizer is not None:
        found |= {"schedule": optimizer.schedule, "weight_decay": optimizer.weight_decay, **optimizer.settings}
        found["rules"] = optimizer.rules
    found |= {"loss": net.loss, "metric": net.metric, "freeze": net.freeze}
    if net.loss_weights is not None:
        found["loss_weights"] = net.loss_weights
    if net.micro_batches > 1:
        found["micro_batches"] = net.micro_batches
    if net.accumulate > 1:
        found["accumulate"] = net.accumulate
    if net.clip_global_norm is not None:
        found["clip_global_norm"] = net.clip_global_norm
    if net.loss_scaling is not None:
        found["loss_scaling"] = net.loss_scaling
    if net.own_step is not None:
        found["step"] = net.own_step
    if net.parallel is not None and net.parallel.size > 1:
        found["processes"] = net.parallel.size
    return {name: described(value) for name, value in found.items()}


def of_rank(net: SteppingNet) -> dict[str, str]:
    """All that ranks which train a net together are to have alike."""
    optimizer = {"optimizer": type(net.optimizer).__name__}
    compiled = {name: described(net.compiled_as.get(name)) for name in ALIKE}
    ranks = {f"{name} of parallel.mpi": described(getattr(net.parallel, name, None)) for name in _OF_RANKS}
    return optimizer | settings(net) | compiled | ranks


def described(value: object) -> str:
    """A text that each process gives to equal settings: a class with its public attributes, or a function's name."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return repr(value.item() if isinstance(value, np.generic) else value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {described(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(described, value)) + "]"
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    public = {name: item for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    return f"{type(value).__name__}({', '.join(f'{name}={described(item)}' for name, item in sorted(public.items()))})"
