"""Kernels that are one call of a NumPy function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.ids import checked_span

#: Gives infinity and NaN without a warning, as every other device does.
_SILENT = np.errstate(all="ignore")
_RELATIONS = {"equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal}
#: Exponents that have a function of their own, several times as fast as `np.power`.
_POWERS: dict[float, np.ufunc] = {0.5: np.sqrt, 1.0: np.positive, 2.0: np.square, -1.0: np.reciprocal}


@_SILENT
def power(x: Array, y: Array, *, exponent: float) -> None:
    """y = x ** exponent."""
    if exponent in _POWERS:
        _POWERS[exponent](x, out=y)
    else:
        np.power(x, exponent, out=y)


#: {kernel: a function that takes its tensors, the result last, and its settings}.
KERNELS: dict[str, Callable[..., object]] = {
    "absolute": np.abs,
    "clip": lambda x, y, *, low, high: np.minimum(np.maximum(x, low, out=y), high, out=y),
    "clip_elements": lambda y, *, threshold: np.clip(y, -threshold, threshold, out=y),
    "compare": lambda a, b, y, *, relation: _RELATIONS[relation](a, b, out=y),
    "copy": lambda x, y: np.copyto(y, x, casting="unsafe"),
    "differs": lambda x, y, *, value: np.not_equal(x, value, out=y),
    "divide": _SILENT(np.divide),
    "exp": _SILENT(np.exp),
    "fill": lambda y, *, value: y.fill(value),
    "flip": lambda x, y, *, axes: np.copyto(y, np.flip(x, axes)),
    "log": _SILENT(np.log),
    "maximum": lambda a, b, y: np.maximum(a, b, out=y),
    "minimum": lambda a, b, y: np.minimum(a, b, out=y),
    "multiply": np.multiply,
    "read_at": lambda x, position, y: np.copyto(y, x[:, checked_span(position, y.shape[1], x.shape[1])]),
    "reduce_max": lambda x, y, *, axes: np.maximum.reduce(x, axis=axes, keepdims=y.ndim == x.ndim, out=y),
    "reduce_min": lambda x, y, *, axes: np.minimum.reduce(x, axis=axes, keepdims=y.ndim == x.ndim, out=y),
    "subtract": np.subtract,
    "write_at": lambda x, position, y: np.copyto(y[:, checked_span(position, x.shape[1], y.shape[1])], x),
}
