"""What an update is given: a parameter, and a gradient that fits it."""

from __future__ import annotations

from singa_lite.autograd.ops.op import common_device
from singa_lite.common.checks import gradient_dtype
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Tensor


def check_operands(kind: str, name: str | None, value: Tensor, gradient: Tensor) -> None:
    """TypeError, ShapeError or DeviceError for what cannot be updated. kind: the optimizer's class."""
    if not isinstance(value, Tensor) or not isinstance(gradient, Tensor):
        given = f"{type(value).__name__} and {type(gradient).__name__}"
        raise TypeError(f"{kind}: wanted update(name, parameter, gradient) of tensors, received {given}")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"{kind}: wanted a parameter's name or None, received {name!r:.100}")
    where = f"{kind}: parameter {called(name, value)}"
    if gradient.shape != value.shape:
        raise ShapeError(f"{where}: wanted a gradient of shape {value.shape}, received {gradient.shape}")
    common_device(where, [value, gradient])
    if gradient_dtype(value.dtype).kind != "f" or gradient.dtype != gradient_dtype(value.dtype):
        raise TypeError(
            f"{where}: wanted a float parameter and a gradient of its dtype, "
            f"received {value.dtype} and {gradient.dtype}"
        )


def called(name: str | None, value: Tensor) -> str:
    """A parameter's name in a message."""
    return repr(name or value.name or "without a name")
