"""Dropout by counter-based random numbers: no mask is kept, the derivative draws the same numbers again."""

from __future__ import annotations

import numpy as np

from singa_lite.checks import fraction
from singa_lite.errors import ShapeError
from singa_lite.ops.op import Op
from singa_lite.tensor import Tensor


class Dropout(Op):
    """y = x / (1 - p) where the element is kept, else 0."""

    def __init__(self, state: Tensor, p: float) -> None:
        self.state, self.p = state, p

    def forward(self, x: Tensor) -> Tensor:
        key = self.device.empty((3,), np.uint64)
        self.device.run("draw_key", self.state, key)
        y = self.empty_like(x)
        self.device.run("dropout", x, key, y, p=self.p)
        self.save(key)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx = self.empty_like(dys[0])
        self.device.run("dropout", dys[0], self.kept(0), dx, p=self.p)
        return dx


def dropout(x: Tensor, state: Tensor, p: float = 0.5) -> Tensor:
    """Zero each element with probability p, scale the others by 1 / (1 - p) (Srivastava 2014, inverted form).

    state: uint64 (3,), (seed, stream, counter); its counter goes up by one at each call.
    """
    if not isinstance(state, Tensor) or state.shape != (3,) or state.dtype != np.uint64:
        raise ShapeError(f"dropout: wanted state uint64 (3,), received {state!r:.100}")
    return Dropout(state, fraction("dropout p", p))(x)
