"""What the last bit of a number may depend on: versions, kernels, threads, and the settings of the training."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from singa_lite import machine, threads
from singa_lite.kernels.onednn_kernels import library
from singa_lite.net import FeedForwardNet

#: Packages of a GPU's kernels.
_CUDA = ("cupy-cuda13x", "nvidia-cublas", "nvidia-cudnn-cu13")


@cache  # it takes a millisecond, during a training step
def environment(kernels: str) -> dict[str, str]:
    """Versions, processor and threads, as text. kernels: the set's name."""
    found = {name: _installed(name) for name in ("singa-lite", "h5py", *(_CUDA if kernels == "cuda" else ()))}
    found |= {"Python": platform.python_version(), "NumPy": np.__version__}
    if kernels == "onednn":
        found["oneDNN"] = library.load().version
    return found | {"kernels": kernels, "threads": str(threads.threads()), "processor": machine.processor()}


def settings(net: FeedForwardNet) -> dict[str, str]:
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
        if net.parallel.compress is not None:
            found["compress"] = net.parallel.compress
    return {name: described(value) for name, value in found.items()}


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


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
