"""Batch, layer, group and root mean square normalisation, local response normalisation, division by the L2 norm."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from singa_lite.autograd.ops.op import Op, checked_tensor
from singa_lite.autograd.ops.synced_normalization import SyncedBatchNorm, across
from singa_lite.common.checks import at_least_zero, finite_above_zero, integer, is_int, share
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Shape, Tensor


class BatchNorm(Op):
    """Normalises each channel by this batch's statistics and moves the running ones towards them."""

    def __init__(self, running_mean: Tensor, running_var: Tensor, momentum: float, epsilon: float) -> None:
        self.running = checked_tensor("batch_norm", running_mean), checked_tensor("batch_norm", running_var)
        self.settings = {"momentum": momentum, "epsilon": epsilon}

    def forward(self, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        _check_channels("batch_norm", x, gamma, beta, *self.running)
        y, mean, inv_std = self.empty_like(x), self.empty_like(gamma), self.empty_like(gamma)
        self.device.run("batch_norm", x, gamma, beta, *self.running, y, mean, inv_std, **self.settings)
        self.save(x, gamma, mean, inv_std)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        x, gamma, mean, inv_std = map(self.kept, range(4))
        dgamma, dbeta = self.empty_like(gamma), self.empty_like(gamma)
        self.made = {1: dgamma, 2: dbeta}
        if index == 0:
            dx = self.empty_like(dys[0])
            self.device.run("batch_norm_derivative", dys[0], x, gamma, mean, inv_std, dx, dgamma, dbeta)
            return dx
        self.device.run("batch_norm_gradient", dys[0], x, mean, inv_std, dgamma, dbeta)
        return self.made.pop(index)


class BatchNormInference(Op):
    """Normalises each channel by the running statistics, which are numbers to it: linear in x, gamma and beta."""

    def __init__(self, running_mean: Tensor, running_var: Tensor, epsilon: float) -> None:
        self.running = checked_tensor("batch_norm", running_mean), checked_tensor("batch_norm", running_var)
        self.epsilon = epsilon

    def forward(self, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        _check_channels("batch_norm", x, gamma, beta, *self.running)
        self.save(x if self.needs[1] or self.needs[2] else None, gamma)
        return self.computed("batch_norm_inference", x, gamma, beta, *self.running, epsilon=self.epsilon)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        gamma, (mean, variance) = self.kept(1), self.running
        zero = self._filled(gamma, 0.0)
        if index == 0:  # dy * gamma / sqrt(variance + epsilon)
            return self.computed("batch_norm_inference", dys[0], gamma, zero, zero, variance, epsilon=self.epsilon)
        one, inv_std = self._filled(gamma, 1.0), self.empty_like(gamma)
        item, count = gamma.dtype.itemsize, gamma.size()
        row, result = (t.view((1, count), (count * item, item)) for t in (one, inv_std))
        self.device.run("batch_norm_inference", row, one, zero, zero, variance, result, epsilon=self.epsilon)
        self.made = {1: self.empty_like(gamma), 2: self.empty_like(gamma)}
        self.device.run("batch_norm_gradient", dys[0], self.kept(0), mean, inv_std, self.made[1], self.made[2])
        return self.made.pop(index)

    def _filled(self, like: Tensor, value: float) -> Tensor:
        made = self.empty_like(like)
        self.device.run("fill", made, value=value)
        return made


class SampleNorm(Op):
    """Normalises parts of a sample by statistics of their own, which are kept. A subclass names its `kernel`."""

    kernel: ClassVar[str]

    def normalize(self, x: Tensor, gamma: Tensor, beta: Tensor, parts: Shape, epsilon: float) -> Tensor:
        """y, as x; mean and 1 / standard deviation have the shape `parts`."""
        y = self.empty_like(x)
        mean, inv_std = (self.device.empty(parts, x.dtype) for _ in range(2))
        self.device.run(self.kernel, x, gamma, beta, y, mean, inv_std, epsilon=epsilon)
        self.save(x, gamma, mean, inv_std)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        x, gamma, mean, inv_std = map(self.kept, range(4))
        if index == 0:
            return self.computed(f"{self.kernel}_derivative", dys[0], x, gamma, mean, inv_std)
        self.made = {1: self.empty_like(gamma), 2: self.empty_like(gamma)}
        self.device.run(f"{self.kernel}_gradient", dys[0], x, mean, inv_std, self.made[1], self.made[2])
        return self.made.pop(index)


class LayerNorm(SampleNorm):
    """Normalises over the trailing axes that gamma has."""

    kernel = "layer_norm"

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def forward(self, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        rows = x.shape[: x.ndim - gamma.ndim]
        if not gamma.ndim or x.shape[len(rows) :] != gamma.shape or beta.shape != gamma.shape:
            raise ShapeError(
                f"layer_norm: wanted gamma and beta of x's trailing axes, received {gamma.shape} and {beta.shape} "
                f"for x {x.shape}"
            )
        return self.normalize(x, gamma, beta, rows, self.epsilon)


class RmsNorm(Op):
    """Divides by the root mean square over the trailing axes that gamma has."""

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def forward(self, x: Tensor, gamma: Tensor) -> Tensor:
        rows = x.shape[: x.ndim - gamma.ndim]
        if not gamma.ndim or x.shape[len(rows) :] != gamma.shape:
            raise ShapeError(f"rms_norm: wanted gamma of x's trailing axes, received {gamma.shape} for x {x.shape}")
        y, inv_rms = self.empty_like(x), self.device.empty(rows, x.dtype)
        self.device.run("rms_norm", x, gamma, y, inv_rms, epsilon=self.epsilon)
        self.save(x, gamma, inv_rms)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        x, gamma, inv_rms = map(self.kept, range(3))
        if index == 0:
            return self.computed("rms_norm_derivative", dys[0], x, gamma, inv_rms)
        dgamma = self.empty_like(gamma)
        self.device.run("rms_norm_gradient", dys[0], x, inv_rms, dgamma)
        return dgamma


class Lrn(Op):
    """Local response normalisation across channels."""

    def __init__(self, size: int, alpha: float, beta: float, k: float) -> None:
        self.settings: dict[str, object] = {"size": size, "alpha": alpha, "beta": beta}
        self.k = k

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2:
            raise ShapeError(f"lrn: wanted x (n, c, ...), received {x.shape}")
        y, scale = self.empty_like(x), self.empty_like(x)
        self.device.run("lrn", x, y, scale, k=self.k, **self.settings)
        self.save(x, scale)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.computed("lrn_derivative", dys[0], self.kept(0), self.kept(1), **self.settings)


class L2Norm(Op):
    """y = x / sqrt(sum of x**2 over the sample + epsilon)."""

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        y, norm = self.empty_like(x), self.device.empty(x.shape[:1], x.dtype)
        self.device.run("l2_norm", x, y, norm, epsilon=self.epsilon)
        self.save(y, norm)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.computed("l2_norm_derivative", dys[0], self.kept(0), self.kept(1))


def _check_channels(where: str, x: Tensor, *vectors: Tensor) -> None:
    if x.ndim < 2 or any(v.shape != (x.shape[1],) for v in vectors):
        raise ShapeError(
            f"{where}: wanted x (n, c, ...) and vectors (c,), received {x.shape} and {[v.shape for v in vectors]}"
        )
    if prod(x.shape) == 0:
        raise ShapeError(f"{where}: wanted at least one element a channel, received x {x.shape}")


def batch_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float = 0.1,
    epsilon: float = 1e-5,
) -> Tensor:
    """Returns gamma * (x - mean) / sqrt(var + epsilon) + beta with this batch's mean and biased variance of each
    channel.

    x: (n, c, ...); all others (c,). The running statistics are changed in place:
    running = (1 - momentum) * running + momentum * batch, the variance unbiased (arXiv 1502.03167). In a step of
    `compile(parallel=parallel.mpi(sync=True))` the batch is that of all processes.

    >>> mean, var = tensor.zeros((3,)), tensor.ones((3,))
    >>> y = autograd.batch_norm(tensor.ones((2, 3, 4, 5)), tensor.ones((3,)), tensor.zeros((3,)), mean, var)
    >>> print(y.shape, mean)
    (2, 3, 4, 5) [0.1 0.1 0.1]
    """
    momentum, epsilon = share("batch_norm momentum", momentum), finite_above_zero("batch_norm epsilon", epsilon)
    others = across.get()
    if others is None:
        return BatchNorm(running_mean, running_var, momentum, epsilon)(x, gamma, beta)
    _check_channels("batch_norm", x, gamma, beta, running_mean, running_var)
    return SyncedBatchNorm(running_mean, running_var, momentum, epsilon, others)(x, gamma, beta)


def batch_norm_inference(
    x: Tensor, gamma: Tensor, beta: Tensor, running_mean: Tensor, running_var: Tensor, epsilon: float = 1e-5
) -> Tensor:
    """Returns gamma * (x - running_mean) / sqrt(running_var + epsilon) + beta. x: (n, c, ...); all others (c,).

    >>> x, ones, zeros = tensor.full((2, 3, 4), 5.0), tensor.ones((3,)), tensor.zeros((3,))
    >>> print(autograd.batch_norm_inference(x, ones, zeros, running_mean=ones, running_var=4 * ones)[0, 0].round(3))
    [2. 2. 2. 2.]
    """
    epsilon = finite_above_zero("batch_norm_inference epsilon", epsilon)
    return BatchNormInference(running_mean, running_var, epsilon)(x, gamma, beta)


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Returns x normalised over its trailing axes, those of gamma and beta, then scaled and shifted by them (arXiv
    1607.06450).

    >>> x = tensor.as_tensor([[1.0, 2.0, 3.0], [2.0, 2.0, 8.0]])
    >>> ones = tensor.ones((3,), "float64")
    >>> print(autograd.layer_norm(x, ones, 0 * ones).round(3))
    [[-1.225  0.     1.225]
     [-0.707 -0.707  1.414]]
    """
    return LayerNorm(finite_above_zero("layer_norm epsilon", epsilon))(x, gamma, beta)


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Returns gamma * x / sqrt(mean of x**2 + epsilon), the mean over x's trailing axes, those of gamma (arXiv
    1910.07467).

    >>> print(autograd.rms_norm(tensor.as_tensor([[3.0, 4.0], [0.0, 2.0]]), tensor.ones((2,), "float64")).round(3))
    [[0.849 1.131]
     [0.    1.414]]
    """
    return RmsNorm(finite_above_zero("rms_norm epsilon", epsilon))(x, gamma)


def lrn(x: Tensor, size: int = 5, alpha: float = 1.0, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Returns x / (k + alpha / size * sum of x**2 over `size` neighbouring channels) ** beta. x: (n, c, ...); size odd.

    >>> autograd.lrn(tensor.ones((2, 6, 4, 5)), size=3).shape
    (2, 6, 4, 5)
    """
    if not is_int(size) or size < 1 or size % 2 == 0:
        raise ValueError(f"lrn size: wanted an odd number of channels, received {size!r}")
    alpha, beta = at_least_zero("lrn alpha", alpha), at_least_zero("lrn beta", beta)
    return Lrn(int(size), alpha, beta, finite_above_zero("lrn k", k))(x)


def l2_norm(x: Tensor, epsilon: float = 1e-8) -> Tensor:
    """Returns x / sqrt(sum of x**2 over the sample + epsilon). x: (n, ...).

    >>> print(autograd.l2_norm(tensor.as_tensor([[3.0, 4.0], [0.0, 2.0]])).round(3))
    [[0.6 0.8]
     [0.  1. ]]
    """
    return L2Norm(finite_above_zero("l2_norm epsilon", epsilon))(x)


class GroupNorm(SampleNorm):
    """Normalises each group of channels of each sample by its own statistics."""

    kernel = "group_norm"

    def __init__(self, groups: int, epsilon: float) -> None:
        self.groups, self.epsilon = groups, epsilon

    def forward(self, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        if x.ndim < 2 or gamma.shape != x.shape[1:2] or beta.shape != gamma.shape or x.shape[1] % self.groups:
            raise ShapeError(
                f"group_norm: wanted x (n, c, ...), gamma and beta (c,), and {self.groups} groups dividing c, received "
                f"{x.shape}, {gamma.shape} and {beta.shape}"
            )
        return self.normalize(x, gamma, beta, (x.shape[0], self.groups), self.epsilon)


def group_norm(x: Tensor, groups: int, gamma: Tensor, beta: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Returns gamma * (x - mean) / sqrt(var + epsilon) + beta, with mean and biased variance of each group of channels
    of each sample. A group has c / groups channels (Wu and He, arXiv 1803.08494). x: (n, c, ...); gamma, beta: (c,);
    groups divides c.

    >>> autograd.group_norm(tensor.ones((2, 6, 4, 5)), 3, tensor.ones((6,)), tensor.zeros((6,))).shape
    (2, 6, 4, 5)
    """
    groups = integer("group_norm groups", groups, 1)
    return GroupNorm(groups, finite_above_zero("group_norm epsilon", epsilon))(x, gamma, beta)
