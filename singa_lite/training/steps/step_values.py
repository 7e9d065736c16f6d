"""Checks of what a step of the user's own returns: its loss, and other numbers by name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from singa_lite.common.errors import DeviceError, GraphError, ShapeError
from singa_lite.device import Device
from singa_lite.tensor import Tensor
from singa_lite.training.steps.step_functions import Values

LOSS = "loss"


def values_of(returned: object, device: Device) -> Values:
    """(loss, {name: number}) of what the function returned: a loss, or a dict with one, all 0-d tensors of the step."""
    named = {LOSS: returned} if isinstance(returned, Tensor) else returned
    if not isinstance(named, Mapping) or LOSS not in named:
        received = f"names {[*named]}" if isinstance(named, Mapping) else f"{type(named).__name__}"
        raise TypeError(f'step: wanted it to return a loss, or {{"loss": tensor, ...}}, received {received}')
    values = {str(name): _checked(str(name), given, device) for name, given in named.items()}
    return values.pop(LOSS), values


def _checked(name: str, given: object, device: Device) -> Tensor:
    """The tensor apart from its tape, so that nothing of the step is held by it."""
    if not isinstance(given, Tensor):
        hint = ": a number of Python's would be the same at each replay" if isinstance(given, int | float) else ""
        raise TypeError(f"step: wanted {name!r} as a tensor of the step, received {type(given).__name__}{hint}")
    if given.shape != () or given.dtype.kind != "f":
        raise ShapeError(
            f"step: wanted {name!r} as one float (), such as autograd.reduce_mean gives, received {given.shape} "
            f"{np.dtype(given.dtype)}"
        )
    if given.block.device is not device:
        raise DeviceError(f"step: wanted {name!r} on {device.name}, received it on {given.device.name}")
    graph = device.graph
    if graph is not None and not graph.knows(given.block):
        raise GraphError(
            f"step: wanted {name!r} made by an operation of this step, received a tensor from outside of it, which no "
            "replay would change"
        )
    return given.detach()
