"""Batch, layer, group and root mean square normalisation, local response normalisation, division by the L2 norm."""

from __future__ import annotations

from math import prod

from singa_lite.autograd.ops.op import KernelOp, Op, checked_tensor
from singa_lite.autograd.ops.synced_normalization import SyncedBatchNorm, across, filled, inverse_deviation
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
        self.device.run("batch_norm", x, gamma, beta, *self.running, None, y, mean, inv_std, **self.settings)
        self.save(x, gamma, mean, inv_std)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        x, gamma, mean, inv_std = map(self.kept, range(4))
        dgamma, dbeta = self.empty_like(gamma), self.empty_like(gamma)
        self.made = {1: dgamma, 2: dbeta}
        if index == 0:
            dx, given = self.empty_like(dys[0]), (x, gamma, None, mean, inv_std, None)
            self.device.run("batch_norm_derivative", dys[0], *given, dx, dgamma, dbeta)
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
        if index == 0:  # dy * gamma / sqrt(variance + epsilon)
            zero = filled(self, gamma, 0.0)
            return self.computed("batch_norm_inference", dys[0], gamma, zero, zero, variance, epsilon=self.epsilon)
        inv_std = inverse_deviation(self, variance, gamma, self.epsilon)
        self.made = {1: self.empty_like(gamma), 2: self.empty_like(gamma)}
        self.device.run("batch_norm_gradient", dys[0], self.kept(0), mean, inv_std, self.made[1], self.made[2])
        return self.made.pop(index)


class SampleNorm(KernelOp):
    """Normalises parts of a sample by statistics of their own, which are kept: inputs x, gamma and perhaps beta.

    parts: the shape of the statistics: mean and 1 / deviation, of a kernel without beta 1 / root mean square.
    """

    def __init__(self, kernel: str, parts: Shape, epsilon: float) -> None:
        super().__init__(kernel, epsilon=epsilon)
        self.parts = parts

    def forward(self, x: Tensor, *vectors: Tensor) -> Tensor:
        y = self.empty_like(x)
        statistics = [self.device.empty(self.parts, x.dtype) for _ in vectors]
        self.device.run(self.kernel, x, *vectors, y, *statistics, **self.settings)
        self.save(x, vectors[0], *statistics)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        x, gamma, *statistics = map(self.kept, range(len(self.saved)))
        if index == 0:
            return self.computed(f"{self.kernel}_derivative", dys[0], x, gamma, *statistics)
        self.made = {vector + 1: self.empty_like(gamma) for vector in range(len(statistics))}
        self.device.run(f"{self.kernel}_gradient", dys[0], x, *statistics, *self.made.values())
        return self.made.pop(index)


class ScaledNorm(KernelOp):
    """y = x over a scale, which is kept with x or y: "lrn" by element, "l2_norm" by sample.

    forward_settings: those that the derivative does not take.
    """

    def __init__(self, kernel: str, forward_settings: dict[str, object], **settings: object) -> None:
        super().__init__(kernel, **settings)
        self.forward_settings = forward_settings

    def forward(self, x: Tensor) -> Tensor:
        y, by_element = self.empty_like(x), self.kernel == "lrn"
        scale = self.empty_like(x) if by_element else self.device.empty(x.shape[:1], x.dtype)
        self.device.run(self.kernel, x, y, scale, **self.forward_settings, **self.settings)
        self.save(x if by_element else y, scale)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.computed(f"{self.kernel}_derivative", dys[0], self.kept(0), self.kept(1), **self.settings)


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
    rows = _rows("layer_norm", x, gamma, beta)
    return SampleNorm("layer_norm", rows, finite_above_zero("layer_norm epsilon", epsilon))(x, gamma, beta)


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Returns gamma * x / sqrt(mean of x**2 + epsilon), the mean over x's trailing axes, those of gamma (arXiv
    1910.07467).

    >>> print(autograd.rms_norm(tensor.as_tensor([[3.0, 4.0], [0.0, 2.0]]), tensor.ones((2,), "float64")).round(3))
    [[0.849 1.131]
     [0.    1.414]]
    """
    return SampleNorm("rms_norm", _rows("rms_norm", x, gamma), finite_above_zero("rms_norm epsilon", epsilon))(x, gamma)


def _rows(where: str, x: Tensor, *vectors: Tensor) -> Shape:
    """The axes of x before those of gamma and beta. ShapeError unless these are its trailing ones."""
    shapes = [checked_tensor(where, vector).shape for vector in vectors]
    rows = checked_tensor(where, x).shape[: x.ndim - len(shapes[0])]
    if not shapes[0] or any(shape != x.shape[len(rows) :] for shape in shapes):
        raise ShapeError(
            f"{where}: wanted gamma{' and beta' if len(shapes) > 1 else ''} of x's trailing axes, received "
            f"{' and '.join(map(str, shapes))} for x {x.shape}"
        )
    return rows


def lrn(x: Tensor, size: int = 5, alpha: float = 1.0, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Returns x / (k + alpha / size * sum of x**2 over `size` neighbouring channels) ** beta. x: (n, c, ...); size odd.

    >>> autograd.lrn(tensor.ones((2, 6, 4, 5)), size=3).shape
    (2, 6, 4, 5)
    """
    if not is_int(size) or size < 1 or size % 2 == 0:
        raise ValueError(f"lrn size: wanted an odd number of channels, received {size!r}")
    alpha, beta = at_least_zero("lrn alpha", alpha), at_least_zero("lrn beta", beta)
    if checked_tensor("lrn", x).ndim < 2:
        raise ShapeError(f"lrn: wanted x (n, c, ...), received {x.shape}")
    k = finite_above_zero("lrn k", k)
    return ScaledNorm("lrn", {"k": k}, size=int(size), alpha=alpha, beta=beta)(x)


def l2_norm(x: Tensor, epsilon: float = 1e-8) -> Tensor:
    """Returns x / sqrt(sum of x**2 over the sample + epsilon). x: (n, ...).

    >>> print(autograd.l2_norm(tensor.as_tensor([[3.0, 4.0], [0.0, 2.0]])).round(3))
    [[0.6 0.8]
     [0.  1. ]]
    """
    return ScaledNorm("l2_norm", {"epsilon": finite_above_zero("l2_norm epsilon", epsilon)})(x)


def group_norm(x: Tensor, groups: int, gamma: Tensor, beta: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Returns gamma * (x - mean) / sqrt(var + epsilon) + beta, with mean and biased variance of each group of channels
    of each sample. A group has c / groups channels (Wu and He, arXiv 1803.08494). x: (n, c, ...); gamma, beta: (c,);
    groups divides c.

    >>> autograd.group_norm(tensor.ones((2, 6, 4, 5)), 3, tensor.ones((6,)), tensor.zeros((6,))).shape
    (2, 6, 4, 5)
    """
    groups = integer("group_norm groups", groups, 1)
    epsilon = finite_above_zero("group_norm epsilon", epsilon)
    shape, *vectors = (checked_tensor("group_norm", given).shape for given in (x, gamma, beta))
    if len(shape) < 2 or any(vector != shape[1:2] for vector in vectors) or shape[1] % groups:
        raise ShapeError(
            f"group_norm: wanted x (n, c, ...), gamma and beta (c,), and {groups} groups dividing c, received "
            f"{shape}, {vectors[0]} and {vectors[1]}"
        )
    return SampleNorm("group_norm", (shape[0], groups), epsilon)(x, gamma, beta)
