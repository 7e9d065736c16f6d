"""Random numbers by a counter: as tensors of an expression, and dropout of elements and of whole channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.autograd.ops.op import LinearOp, checked_tensor
from singa_lite.autograd.ops.shape import numbers
from singa_lite.common.checks import at_least_zero, finite, fraction
from singa_lite.common.errors import ShapeError
from singa_lite.device import device_of
from singa_lite.tensor import Tensor, checked_dtype

#: What draws keys in the present call in the place of the kernel `draw_key`, from state and into a key: where several
#: processes have one state, each has keys of its own.
drawing: ContextVar[Callable[[Tensor, Tensor], None] | None] = ContextVar("drawing", default=None)


def normal(
    shape: Sequence[int], state: Tensor, mean: float = 0.0, std: float = 1.0, dtype: DTypeLike = "float32"
) -> Tensor:
    """Returns normal random numbers, others at each call and at each replay of a record. No derivative leads to them.

    state: uint64 (3,), (seed, stream, counter); its counter goes up by one at each call. std: 0 or more. dtype: of the
    result, a float type. It is on the state's device.

    >>> state = tensor.from_numpy(np.array([7, 0, 0], "uint64"))
    >>> noise = autograd.normal((2, 3), state, std=0.1)
    >>> noise.shape, state.tolist()
    ((2, 3), [7, 0, 1])
    """
    extents = numbers("normal", "a shape", shape)
    if min(extents, default=1) < 1:
        raise ShapeError(f"normal: wanted a shape of extents of at least 1, received {shape!r}")
    kind = checked_dtype("normal", dtype)
    if kind.kind != "f":
        raise TypeError(f"normal: wanted a float dtype, received {dtype!r}")
    mean, std = finite("normal mean", mean), at_least_zero("normal std", std)
    key = drawn_key("normal", state)
    made: Tensor = key.device.empty(extents, kind)
    key.device.run("normal", key, made, mean=mean, std=std)
    return made


def drawn_key(where: str, state: object) -> Tensor:
    """The key for the next numbers, after which the state's counter is one more. ShapeError for what is no state."""
    if not isinstance(state, Tensor) or state.shape != (3,) or state.dtype != np.uint64:
        raise ShapeError(f"{where}: wanted state uint64 (3,), received {state!r:.100}")
    key: Tensor = device_of(state).empty((3,), np.uint64)
    draw = drawing.get()
    if draw is None:
        key.device.run("draw_key", state, key)
    else:
        draw(state, key)
    return key


def dropout(x: Tensor, state: Tensor, p: float = 0.5) -> Tensor:
    """Returns x with each element set to 0 with probability p, the others divided by 1 - p (Srivastava 2014, inverted
    form).

    state: uint64 (3,), (seed, stream, counter); its counter goes up by one at each call.

    >>> state = tensor.from_numpy(np.array([7, 0, 0], "uint64"))  # seed, stream, counter
    >>> sorted(set(autograd.dropout(tensor.ones((50,)), state, p=0.5).tolist()))
    [0.0, 2.0]
    """
    p = fraction("dropout p", p)
    checked_tensor("dropout", x)
    return LinearOp("dropout", p=p)(x, drawn_key("dropout", state))


def spatial_dropout(x: Tensor, state: Tensor, p: float = 0.5) -> Tensor:
    """Returns x with each channel of each sample set to 0 with probability p, the others divided by 1 - p (arXiv
    1411.4280).

    x: (n, c, ...); NaN and infinities of a channel that is dropped become NaN. state: as for `dropout`.

    >>> state = tensor.from_numpy(np.array([7, 0, 0], "uint64"))
    >>> autograd.spatial_dropout(tensor.ones((2, 3, 4, 5)), state, p=0.2).shape
    (2, 3, 4, 5)
    """
    p = fraction("spatial_dropout p", p)
    if checked_tensor("spatial_dropout", x).ndim < 2:
        raise ShapeError(f"spatial_dropout: wanted x (n, c, ...), received {x.shape}")
    key = drawn_key("spatial_dropout", state)
    factors: Tensor = key.device.empty((*x.shape[:2], *(1,) * (x.ndim - 2)), x.dtype)
    key.device.run("fill", factors, value=1.0)
    key.device.run("dropout", factors, key, factors, p=p)
    return LinearOp("multiply")(x, factors)
