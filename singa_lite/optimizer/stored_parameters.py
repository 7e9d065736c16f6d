"""Parameters that are stored in bfloat16: how updates round them, and the state that this takes.

stochastic: the count of a parameter's updates has a seed and a stream behind it, int64 (3,), from which the chance of
each rounding comes. compensated: a slot "error" of a byte an element has what rounding to nearest left over. It begins
with a number of each element's own from all over a last place, as the rests of numbers that came from float32 have.
With rests of 0 a value that steps of a hundredth of a last place move would stand still for fifty of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from math import prod
from typing import cast

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.checks import is_bfloat16
from singa_lite.device import Device, device_of
from singa_lite.kernels.interface import stored_update
from singa_lite.kernels.interface.update import Hyper
from singa_lite.optimizer.stepping import Rounding as Rounding
from singa_lite.optimizer.stepping import Stepping
from singa_lite.tensor import Shape, Tensor

#: What `compile(rounding=)` takes beside parameter_dtype="bfloat16".
ROUNDINGS = ("stochastic", "compensated")
#: The slot of what rounding to nearest left over.
ERROR = "error"
#: Errors that are made at a time.
_TOGETHER = 1 << 16


def is_stored(value: Tensor) -> bool:
    """Whether a parameter is stored in bfloat16."""
    return is_bfloat16(value.dtype)


def own_forms(value: Tensor, rounding: Rounding) -> dict[str, tuple[Shape, DType]]:
    """{slot: shape and dtype} of the state that a stored parameter has besides, or in the place of the optimizer's."""
    if not is_stored(value):
        return {}
    if rounding.name == "compensated":
        return {ERROR: (value.shape, np.dtype(np.int8))}
    return {"count": ((3,), np.dtype(np.int64))}


def begin_state(state: Mapping[str, Tensor], value: Tensor, name: str | None, rounding: Rounding) -> None:
    """Put the seed and the parameter's stream behind a count of 0, where there is place for them; spread errors."""
    stream = zlib.crc32((value.name if name is None else name).encode())
    if (count := state["count"]).shape:
        with count.device.first_values():
            count.copy_from_numpy(np.array([0, rounding.seed % 2**64, stream], np.uint64).view(np.int64))
    if ERROR in state and not value.device.is_abstract:
        _spread(state[ERROR], value, stream)


def _spread(error: Tensor, value: Tensor, stream: int) -> None:
    """Sets the rounding error of each element to a byte that follows from its place, some rows at a time.

    Elements that are 0 have the error 0, as no bits lie below their own. Values are read past a recording, which has
    updated none of them: they have no state yet.
    """
    columns = max(prod(error.shape[1:]), 1)
    rows = max(1, _TOGETHER // columns)
    for start in range(0, error.shape[0], rows):
        part, values = (_rows(tensor, start, min(start + rows, error.shape[0])) for tensor in (error, value))
        mixed = np.arange(prod(part.shape), dtype=np.uint32) + np.uint32((start * columns + stream) % 2**32)
        for shift, factor in ((16, 0x9E3779B1), (15, 0x85EBCA6B)):
            mixed ^= mixed >> np.uint32(shift)
            mixed *= np.uint32(factor)
        spread = (mixed >> np.uint32(24)).astype(np.uint8).view(np.int8).reshape(part.shape)
        spread[device_of(value).runtime.read(cast(Array, values.array)) == 0] = 0
        part.copy_from_numpy(spread)


def _rows(tensor: Tensor, start: int, stop: int) -> Tensor:
    """A view of some of them."""
    return tensor.view((stop - start, *tensor.shape[1:]), tensor.strides, start * tensor.strides[0])


def check(optimizer: Stepping, rounding: Rounding) -> None:
    """ValueError where the optimizer has state of values that were rounded otherwise."""
    if optimizer.state and rounding.name != optimizer.rounding.name:
        raise ValueError(
            f"compile parameter_dtype, rounding: wanted {optimizer.rounding.name!r}, by which the state of "
            f"{type(optimizer).__name__} was made, received {rounding.name!r}; a new optimizer begins with none"
        )


def run_update(
    device: Device, kernel: str, operands: tuple[Tensor | None, ...], state: Mapping[str, Tensor], hyper: Hyper
) -> None:
    """Do an update, or record it: gradient, rate, value and so on. A stored value is rounded behind it."""
    value = operands[2]
    if value is not None and is_stored(value):
        device.run(stored_update(kernel), *operands, state.get(ERROR), hyper=hyper, first=0)
    else:
        device.run(kernel, *operands, hyper=hyper)


def add_value(value: Tensor, state: Mapping[str, Tensor], total: Tensor, alpha: float) -> None:
    """total += alpha * the value, with what rounding left over."""
    device, error = device_of(value), state.get(ERROR)
    if error is None:
        device.run("add_scaled", value, total, alpha=alpha)
    else:
        device.run("add_stored", value, error, total, alpha=alpha)
