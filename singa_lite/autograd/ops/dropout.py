"""Dropout by counter-based random numbers, of elements and of whole channels."""

from __future__ import annotations

from singa_lite.autograd.ops.noise import checked_state, drawn_key
from singa_lite.autograd.ops.op import Op
from singa_lite.common.checks import fraction
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Tensor


class Dropout(Op):
    """y = x / (1 - p) where the element is kept, else 0. No mask is kept: the derivative draws the same numbers."""

    def __init__(self, state: Tensor, p: float) -> None:
        self.state, self.p = state, p

    def forward(self, x: Tensor) -> Tensor:
        key = drawn_key("dropout", self.state)
        y = self.empty_like(x)
        self.device.run("dropout", x, key, y, p=self.p)
        self.save(key)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx = self.empty_like(dys[0])
        self.device.run("dropout", dys[0], self.kept(0), dx, p=self.p)
        return dx


class SpatialDropout(Op):
    """As `Dropout`, one number for each channel of each sample: its factor, 0 or 1 / (1 - p), is kept."""

    def __init__(self, state: Tensor, p: float) -> None:
        self.state, self.p = state, p

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2:
            raise ShapeError(f"spatial_dropout: wanted x (n, c, ...), received {x.shape}")
        key = drawn_key("spatial_dropout", self.state)
        factors = self.device.empty((*x.shape[:2], *(1,) * (x.ndim - 2)), x.dtype)
        self.device.run("fill", factors, value=1.0)
        self.device.run("dropout", factors, key, factors, p=self.p)
        self.save(factors)
        return self._times(x, factors)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self._times(dys[0], self.kept(0))

    def _times(self, x: Tensor, factors: Tensor) -> Tensor:
        y = self.empty_like(x)
        self.device.run("multiply", x, factors, y)
        return y


def dropout(x: Tensor, state: Tensor, p: float = 0.5) -> Tensor:
    """Zero each element with probability p, scale the others by 1 / (1 - p) (Srivastava 2014, inverted form).

    state: uint64 (3,), (seed, stream, counter); its counter goes up by one at each call.
    """
    return Dropout(checked_state("dropout", state), fraction("dropout p", p))(x)


def spatial_dropout(x: Tensor, state: Tensor, p: float = 0.5) -> Tensor:
    """Zero each channel of each sample with probability p, scale the others by 1 / (1 - p) (arXiv 1411.4280).

    x: (n, c, ...); NaN and infinities of a channel that is dropped become NaN. state: as for `dropout`.
    """
    return SpatialDropout(checked_state("spatial_dropout", state), fraction("spatial_dropout p", p))(x)
