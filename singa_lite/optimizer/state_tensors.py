"""Tensors of an optimizer's state: made beside a parameter, and moved to another device."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.device import Device
from singa_lite.tensor import Shape, Tensor


def zeros(shape: Shape, dtype: DType, value: Tensor) -> Tensor:
    """State of a parameter, which lies as its value does, so that an update goes along both."""
    made: Tensor = value.device.empty(shape, dtype, value.memory_order() if shape == value.shape else "")
    made.layout = value.layout if shape == value.shape else ""
    # A host copy, not a kernel: a recorded step must not clear the state at each replay.
    with value.device.first_values():
        made.copy_from_numpy(np.broadcast_to(np.zeros((), dtype), shape))
    return made


def are_abstract(tensors: Iterable[Tensor]) -> bool:
    """Whether state of a parameter, or its sum, has no bytes."""
    return any(tensor.device.is_abstract for tensor in tensors)


def move(state: dict[str, Tensor], device: Device) -> None:
    """Move all of them."""
    state.update({slot: tensor.to_device(device) for slot, tensor in state.items()})
