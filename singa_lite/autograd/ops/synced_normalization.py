"""Batch normalisation by the statistics of several processes' samples, forward and in its derivative."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.autograd.ops.op import Op
from singa_lite.tensor import Tensor


class RankShare(NamedTuple):
    """share: this process's share of all samples, float64 (); total: how many samples there are, float64 (). Both are
    read at each replay. add_up: makes of a tensor without gaps the sum of all processes'.
    """

    share: Tensor
    total: Tensor
    add_up: Callable[[Tensor], None]


#: Of the present call, where statistics are those of all processes; None: those of this one.
across: ContextVar[RankShare | None] = ContextVar("across", default=None)


class SyncedBatchNorm(Op):
    """As `BatchNorm`, with mean and variance over the samples of all processes.

    With M elements a channel in all, s the deviation, h = (x - mean) / s:
    dx = gamma / s * (dy - sum(dy) / M - h * sum(dy * h) / M), where the sums are over all processes.
    """

    def __init__(
        self, running_mean: Tensor, running_var: Tensor, momentum: float, epsilon: float, across: RankShare
    ) -> None:
        self.running = running_mean, running_var
        self.momentum, self.epsilon, self.across = momentum, epsilon, across

    def forward(self, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        self.pixels = prod(x.shape[2:])
        mean = self._mean(x)
        y = self.computed("subtract", x, mean.view((1, x.shape[1], *(1,) * (x.ndim - 2))))
        squares = self.computed("multiply", y, y)
        variance = self._mean(squares)
        del squares
        self._normalize(x, gamma, beta, mean, variance, y)
        self._follow(mean, variance)
        self.save(x, gamma, mean, variance)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        x, gamma, mean, variance = map(self.kept, range(4))
        inv_std = inverse_deviation(self, variance, variance, self.epsilon)
        sums = self.device.empty((2, gamma.size()), gamma.dtype)
        dgamma, dbeta = (self.empty_like(gamma) for _ in range(2))
        self.device.run("batch_norm_gradient", dys[0], x, mean, inv_std, dgamma, dbeta)
        self.made = {1: dgamma, 2: dbeta}
        if index:
            return self.made.pop(index)
        for row, part in zip(_rows(sums), (dgamma, dbeta), strict=True):
            self.device.run("copy", part, row)
        self.across.add_up(sums)
        over_elements = self.computed("divide", filled(self, self.across.total, 1.0), self._elements(0.0))
        self.device.run("scale_by", over_elements, sums)
        of_h, of_dy = _rows(sums)
        scaled = self.computed("multiply", gamma, inv_std)
        first, second = (self._negated_product(scaled, row) for row in (of_h, of_dy))
        zero = filled(self, gamma, 0.0)
        dx, beside = self.empty_like(x), self.empty_like(x)
        self._normalize(dys[0], gamma, second, zero, variance, dx)
        self._normalize(x, first, zero, mean, variance, beside)
        self.device.run("add_scaled", beside, dx, alpha=1.0)
        return dx

    def _mean(self, x: Tensor) -> Tensor:
        """Of each channel, over all processes: (c,)."""
        axes = (0, *range(2, x.ndim))
        mean: Tensor = self.device.empty((x.shape[1],), x.dtype)
        self.device.run("reduce_sum", x, mean, axes=axes, alpha=1.0 / prod(x.shape[axis] for axis in axes))
        self.device.run("scale_by", self.across.share, mean)
        self.across.add_up(mean)
        return mean

    def _normalize(self, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor, y: Tensor) -> None:
        self.device.run("batch_norm_inference", x, gamma, beta, mean, variance, y, epsilon=self.epsilon)

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """The running statistics; their variance is unbiased, by the elements of all processes."""
        unbiased = self.empty_like(variance)
        self.device.run("copy", variance, unbiased)
        self.device.run("scale_by", self.computed("divide", self._elements(0.0), self._elements(1.0)), unbiased)
        for running, batch in zip(self.running, (mean, unbiased), strict=True):
            old = self.computed("scale", running, alpha=1.0 - self.momentum, beta=0.0)
            self.device.run("add_scaled", batch, old, alpha=self.momentum)
            self.device.run("copy", old, running)

    def _elements(self, less: float) -> Tensor:
        """Of a channel, in all processes, less so many: float64 ()."""
        return self.computed("scale", self.across.total, alpha=float(self.pixels), beta=-less)

    def _negated_product(self, a: Tensor, b: Tensor) -> Tensor:
        return self.computed("scale", self.computed("multiply", a, b), alpha=-1.0, beta=0.0)


def filled(op: Op, like: Tensor, value: float) -> Tensor:
    """A new tensor of this shape and dtype with the value everywhere."""
    made = op.empty_like(like)
    op.device.run("fill", made, value=value)
    return made


def inverse_deviation(op: Op, variance: Tensor, like: Tensor, epsilon: float) -> Tensor:
    """1 / sqrt(variance + epsilon), in the dtype of `like`, by the kernel that normalises."""
    zero, one, inv_std = filled(op, like, 0.0), filled(op, like, 1.0), op.empty_like(like)
    count, item = like.size(), like.dtype.itemsize
    row, result = (each.view((1, count), (count * item, item)) for each in (one, inv_std))
    op.device.run("batch_norm_inference", row, one, zero, zero, variance, result, epsilon=epsilon)
    return inv_std


def _rows(sums: Tensor) -> list[Tensor]:
    """The rows of a matrix without gaps."""
    count, item = sums.shape[1], np.dtype(sums.dtype).itemsize
    return [sums.view((count,), (item,), row * count * item) for row in range(sums.shape[0])]
