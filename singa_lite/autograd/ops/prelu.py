"""PReLU: a leaky ReLU whose slopes are trained."""

from __future__ import annotations

import numpy as np

from singa_lite.autograd.ops.op import Op
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Tensor


class PRelu(Op):
    """y = x where x > 0, else alpha * x. Only x is kept; its negative part is made again for alpha's gradient."""

    def forward(self, x: Tensor, alpha: Tensor) -> Tensor:
        if alpha.ndim > x.ndim or _common(x, alpha) != x.shape or alpha.dtype != x.dtype:
            raise ShapeError(
                f"prelu: wanted alpha of a shape that broadcasts to x's, and its dtype, received {alpha.shape} "
                f"{alpha.dtype} for x {x.shape} {x.dtype}"
            )
        below, y = self._negated_below(x), self.empty_like(x)
        self.device.run("multiply", below, alpha, below)
        self.device.run("relu", x, y)
        self.device.run("subtract", y, below, y)
        self.shape = alpha.shape
        self.save(x, alpha if self.needs[0] else None)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self._by_x(dys[0]) if index == 0 else self._by_alpha(dys[0])

    def _negated_below(self, x: Tensor) -> Tensor:
        """max(-x, 0): for an infinite x too there is no difference of infinities."""
        below = self.empty_like(x)
        self.device.run("scale", x, below, alpha=-1.0, beta=0.0)
        self.device.run("relu", below, below)
        return below

    def _by_x(self, dy: Tensor) -> Tensor:
        """dy where x > 0, else alpha * dy, also where x is 0."""
        above, below = self.empty_like(dy), self.empty_like(dy)
        self.device.run("relu_derivative", dy, self.kept(0), above)
        self.device.run("subtract", dy, above, below)
        self.device.run("multiply", below, self.kept(1), below)
        self.device.run("add", above, below, above)
        return above

    def _by_alpha(self, dy: Tensor) -> Tensor:
        """The sum of dy * min(x, 0) over all that an alpha serves."""
        product = self._negated_below(self.kept(0))
        self.device.run("multiply", dy, product, product)
        padded = (1,) * (dy.ndim - len(self.shape)) + self.shape
        axes = tuple(axis for axis, extent in enumerate(padded) if extent != dy.shape[axis] or extent == 1)
        if not axes:  # an alpha for each element of one sample
            self.device.run("scale", product, product, alpha=-1.0, beta=0.0)
            return product
        total = self.device.empty(padded, dy.dtype)
        self.device.run("reduce_sum", product, total, axes=axes, alpha=-1.0)
        return total.view(self.shape)


def _common(x: Tensor, alpha: Tensor) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(x.shape, alpha.shape)
    except ValueError:
        return ()


def prelu(x: Tensor, alpha: Tensor) -> Tensor:
    """x where x > 0, else alpha * x (He and others, arXiv 1502.01852). alpha: of a shape that broadcasts to x's."""
    return PRelu()(x, alpha)
