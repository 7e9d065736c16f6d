"""Parameters as a net stores them: vectors in its dtype, and matrices and filters in that or in bfloat16."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.array_types import DType
from singa_lite.common.checks import check_choice, is_bfloat16, narrow_dtype
from singa_lite.layer import initializer
from singa_lite.tensor import Tensor, empty
from singa_lite.tensor.making import store_as

#: What `parameter_dtype` takes: how matrices and filters are stored.
PARAMETER_DTYPES = ("float32", "bfloat16")
_ONE_KERNEL = (initializer.Constant, initializer.Uniform, initializer.Normal, initializer.FanScaled)
#: Calls of initializers that are one kernel, which rounds its numbers as it makes them.
_ROUNDING = tuple(kind.__call__ for kind in _ONE_KERNEL)


def check(where: str, name: str | None, dtype: DType) -> None:
    """ValueError or ImportError where a net cannot store parameters so. name: None: in the net's dtype."""
    if name is None or check_choice(where, name, PARAMETER_DTYPES) == "float32":
        return
    narrow_dtype(where, name)
    if dtype != np.float32:
        raise ValueError(f"{where}={name!r}: wanted a net in float32, received one in {dtype}")


def dtype_of(ndim: int, name: str | None, dtype: DType) -> DType:
    """The dtype of a parameter of so many axes. dtype: of the net."""
    return narrow_dtype("parameter_dtype", name) if name == "bfloat16" and ndim > 1 else dtype


def store(values: Iterable[Tensor], name: str | None, dtype: DType) -> None:
    """Stores parameters so, one at a time."""
    for value in values:
        wanted = dtype_of(value.ndim, name, dtype)
        if value.dtype != wanted:
            store_as(value, wanted)


def fill(init: initializer.Spec, value: Tensor, key: NDArray[np.uint64], fans: tuple[int, int]) -> None:
    """Gives a parameter its first values, see `initializer.fill`; in bfloat16 those of float32, rounded to nearest."""
    if not is_bfloat16(value.dtype) or value.device.is_abstract or type(initializer.get(init)).__call__ in _ROUNDING:
        initializer.fill(init, value, key, *fans)
        return
    wide = empty(value.shape, np.float32, value.device)
    wide.name = value.name
    initializer.fill(init, wide, key, *fans)
    value.device.run("copy", wide, value)
