"""Batch normalisation by the statistics of several processes' samples, forward and in its derivative."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.autograd.ops.op import Op
from singa_lite.tensor import Shape, Tensor


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
        y = self.computed("subtract", x, mean.view(_channel_shape(x)))
        squares = self.computed("multiply", y, y)
        variance = self._mean(squares)
        del squares
        self._normalize(x, gamma, beta, mean, variance, y)
        self._follow(mean, variance)
        self.save(x, gamma, mean, variance)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        x, gamma, mean, variance = map(self.kept, range(4))
        inv_std = self._inv_std(variance)
        sums = self.device.empty((2, gamma.size()), gamma.dtype)
        dgamma, dbeta = (self.empty_like(gamma) for _ in range(2))
        self.device.run("batch_norm_gradient", dys[0], x, mean, inv_std, dgamma, dbeta)
        self.made = {1: dgamma, 2: dbeta}
        if index:
            return self.made.pop(index)
        for row, part in zip(_rows(sums), (dgamma, dbeta), strict=True):
            self.device.run("copy", part, row)
        self.across.add_up(sums)
        self.device.run("scale_by", self._over_elements(), sums)
        of_h, of_dy = _rows(sums)
        scaled = self._product(gamma, inv_std)
        first, second = self._product(scaled, of_h, -1.0), self._product(scaled, of_dy, -1.0)
        zero = self._filled(gamma.shape, gamma, 0.0)
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

    def _inv_std(self, variance: Tensor) -> Tensor:
        """1 / sqrt(variance + epsilon)."""
        zero, one = (self._filled(variance.shape, variance, value) for value in (0.0, 1.0))
        inv_std, (count, item) = self.empty_like(variance), (variance.size(), variance.dtype.itemsize)
        row, result = (each.view((1, count), (count * item, item)) for each in (one, inv_std))
        self._normalize(row, one, zero, zero, variance, result)
        return inv_std

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """The running statistics; their variance is unbiased, by the elements of all processes."""
        unbiased = self.empty_like(variance)
        self.device.run("copy", variance, unbiased)
        self.device.run("scale_by", self._unbiased(), unbiased)
        for running, batch in zip(self.running, (mean, unbiased), strict=True):
            old = self.computed("scale", running, alpha=1.0 - self.momentum, beta=0.0)
            self.device.run("add_scaled", batch, old, alpha=self.momentum)
            self.device.run("copy", old, running)

    def _elements(self, less: float) -> Tensor:
        """Of a channel, in all processes, less so many: float64 ()."""
        return self.computed("scale", self.across.total, alpha=float(self.pixels), beta=-less)

    def _over_elements(self) -> Tensor:
        return self.computed("divide", self._filled((), self.across.total, 1.0), self._elements(0.0))

    def _unbiased(self) -> Tensor:
        """M / (M - 1)."""
        return self.computed("divide", self._elements(0.0), self._elements(1.0))

    def _product(self, a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
        found = self.computed("multiply", a, b)
        return found if alpha == 1.0 else self.computed("scale", found, alpha=alpha, beta=0.0)

    def _filled(self, shape: Shape, like: Tensor, value: float) -> Tensor:
        made: Tensor = self.device.empty(shape, like.dtype)
        self.device.run("fill", made, value=value)
        return made


def _channel_shape(x: Tensor) -> Shape:
    """A shape by which vectors of channels broadcast to x."""
    return (1, x.shape[1], *(1,) * (x.ndim - 2))


def _rows(sums: Tensor) -> list[Tensor]:
    """The rows of a matrix without gaps."""
    count, item = sums.shape[1], np.dtype(sums.dtype).itemsize
    return [sums.view((count,), (item,), row * count * item) for row in range(sums.shape[0])]
