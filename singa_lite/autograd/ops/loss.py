"""Losses of scores against targets of their shape: one value a sample (squared error: one an element)."""

from __future__ import annotations

from singa_lite.autograd.ops.op import Op
from singa_lite.autograd.ops.reduction import reduce_mean
from singa_lite.common.checks import above_zero
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Tensor


class ElementLoss(Op):
    """A loss of x against a target of its shape; kernel and kernel_derivative do it."""

    def __init__(self, kernel: str, per_element: bool = False, **settings: object) -> None:
        self.kernel, self.per_element, self.settings = kernel, per_element, settings

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        check_same_shape_and_dtype(self.kernel, x, target)
        losses = self.device.empty(x.shape if self.per_element else x.shape[:1], x.dtype)
        self.device.run(self.kernel, x, target, losses, **self.settings)
        self.save(x, target)
        return losses

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index:
            return super().backward(index, *dys)
        x, target = self.kept(0), self.kept(1)
        dx = self.empty_like(x)
        self.device.run(f"{self.kernel}_derivative", dys[0], x, target, dx, **self.settings)
        return dx


def check_same_shape_and_dtype(where: str, x: Tensor, target: Tensor) -> None:
    """ShapeError or TypeError unless the target has the shape and dtype of x."""
    if target.shape != x.shape:
        raise ShapeError(f"{where}: wanted a target of the scores' shape {x.shape}, received {target.shape}")
    if target.dtype != x.dtype:
        raise TypeError(f"{where}: wanted a target of the scores' dtype {x.dtype}, received {target.dtype}")


def sigmoid_cross_entropy_values(x: Tensor, target: Tensor) -> Tensor:
    """Binary cross entropy of sigmoid(x), the mean over each sample. x: raw scores (n, ...); target: x's shape."""
    return ElementLoss("sigmoid_cross_entropy")(x, target)


def sigmoid_cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    """Mean over the batch of `sigmoid_cross_entropy_values`; result ()."""
    return reduce_mean(sigmoid_cross_entropy_values(x, target))


def squared_error_values(x: Tensor, target: Tensor) -> Tensor:
    """(x - target)**2 / 2, element by element. target: x's shape."""
    return ElementLoss("squared_error", per_element=True)(x, target)


def squared_error(x: Tensor, target: Tensor) -> Tensor:
    """Mean over all elements of `squared_error_values`; result ()."""
    return reduce_mean(squared_error_values(x, target))


def huber_values(x: Tensor, target: Tensor, delta: float = 1.0) -> Tensor:
    """r**2 / 2 where |r| <= delta, else delta * (|r| - delta / 2), r = x - target; the mean over each sample."""
    return ElementLoss("huber", delta=above_zero("huber delta", delta))(x, target)


def huber(x: Tensor, target: Tensor, delta: float = 1.0) -> Tensor:
    """Mean over the batch of `huber_values`; result ()."""
    return reduce_mean(huber_values(x, target, delta))
