"""In how many bits an optimizer keeps its state: its form for a parameter, and whether it can be kept so."""

from __future__ import annotations

from math import prod

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.kernels.interface.state_format import BFLOAT16, BLOCKED, LEAST_ELEMENTS, blocked_shape
from singa_lite.optimizer.stepping import Stepping
from singa_lite.tensor import Shape

NAMES = ("bfloat16", "int8")


def form(state_dtype: str | None, shape: Shape, dtype: DType) -> tuple[Shape, DType]:
    """Shape and dtype of a state tensor for a parameter of this shape and dtype, see `Optimizer.keep_state_as`.

    ValueError for a name that was set by hand and is not known.
    """
    if state_dtype not in (None, *NAMES):
        raise ValueError(f"optimizer state_dtype: wanted one of {NAMES} or None, received {state_dtype!r:.100}")
    if state_dtype == "bfloat16":
        return shape, BFLOAT16
    if state_dtype == "int8" and prod(shape) >= LEAST_ELEMENTS:
        return blocked_shape(shape), BLOCKED
    return shape, dtype


def check(optimizer: Stepping, given: object, dtype: DType | None = None) -> None:
    """ValueError unless the optimizer's state can be kept so from now on. dtype: of the parameters, where it is known.

    TypeError for what is no name.
    """
    what = f"{type(optimizer).__name__} state_dtype"
    if given is not None and not isinstance(given, str):
        raise TypeError(f"{what}: wanted one of {NAMES} or None, received {given!r:.100}")
    if given is not None and given not in NAMES:
        raise ValueError(f"{what}: wanted one of {NAMES} or None, received {given!r:.100}")
    if given is not None and optimizer.slots == ("count",):
        raise ValueError(f"{what}: wanted an optimizer that keeps state, such as SGD(momentum=0.9), received {given!r}")
    if given is not None and given not in optimizer.state_dtypes:
        raise ValueError(
            f"{what}: wanted None, as its state is a few numbers for each row and column, received {given!r}"
        )
    if given is not None and dtype is not None and dtype != np.float32:
        raise ValueError(f"{what}: wanted parameters in float32 beside {given!r}, received {dtype}")
    if optimizer.state and given != optimizer.state_dtype:
        raise ValueError(
            f"{what}: wanted {optimizer.state_dtype!r}, as which it keeps the state that it has, received {given!r}; "
            "a new optimizer begins with none"
        )
