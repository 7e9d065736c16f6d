"""Normalizations of channels: by the batch, in groups of each sample, or by neighbouring channels."""

from __future__ import annotations

from typing import Any

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import input_axes, label, number, positive, positive_int
from singa_lite.layers.normalization.layer_normalization import Scaled
from singa_lite.tensor import Shape, Tensor


class BatchNormalization(Scaled):
    """Normalises each channel over the batch: y = gamma * (x - mean) / sqrt(var + epsilon) + beta.

    From Ioffe and Szegedy, arXiv 1502.03167. In training, mean and biased variance are those of the batch,
    over all axes but the channels, and the running ones follow: running = (1 - momentum) * running +
    momentum * batch, with the unbiased variance (PyTorch's form). In evaluation, the running ones are used.

    Input and output samples (channels,), (channels, length) or (channels, height, width). Parameters: gamma,
    beta (channels,). State: running_mean (0 at first), running_var (1 at first), (channels,).

    momentum: from 0 to 1, the weight of the new batch. epsilon: above 0. gamma_init, beta_init: an
    Initializer, its name, or a number.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.BatchNormalization("norm")])
    >>> sorted(net.parameters()), sorted(net.states())
    (['norm/beta', 'norm/gamma'], ['norm/running_mean', 'norm/running_var'])
    """

    batch_statistics = True

    def __init__(self, name: str, momentum: float = 0.1, **options: Any) -> None:
        super().__init__(name, **options)
        self.momentum = number(self, "momentum", momentum, 0, 1)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = input_axes(self, shapes, ("channels", "..."))
        self.add_scale(shape[:1])
        self.add_state("running_mean", shape[:1])
        self.add_state("running_var", shape[:1], 1.0)
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, ...) -> the same shape; in training the running statistics move."""
        scale = self.parameters["gamma"], self.parameters["beta"]
        running = self.states["running_mean"], self.states["running_var"]
        if training:
            return autograd.batch_norm(x, *scale, *running, momentum=self.momentum, epsilon=self.epsilon)
        return autograd.batch_norm_inference(x, *scale, *running, epsilon=self.epsilon)


class GroupNormalization(Scaled):
    """Normalises groups of channels: y = gamma * (x - mean) / sqrt(var + epsilon) + beta (Wu and He, arXiv 1803.08494).

    mean and biased variance are those of each group of channels / groups channels of each sample, in training as in
    evaluation, so that no sample sees another. One group is layer normalisation over whole samples but for gamma and
    beta; as many groups as channels are instance normalisation (arXiv 1607.08022).

    Input and output samples (channels,), (channels, length) or (channels, height, width). Parameters: gamma, beta
    (channels,).

    groups: divides the channels; None for as many. epsilon: above 0. gamma_init, beta_init: an Initializer, its name,
    or a number.

    >>> net = Sequential([layers.Input((6, 8, 5)), layers.GroupNormalization(groups=3)])
    >>> net.predict(np.ones((2, 6, 8, 5), "float32")).shape
    (2, 6, 8, 5)
    """

    def __init__(self, name: str, groups: int | None = 32, **options: Any) -> None:
        super().__init__(name, **options)
        self.groups = None if groups is None else positive_int(self, "groups", groups)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = input_axes(self, shapes, ("channels", "..."))
        if self.groups is not None and shape[0] % self.groups:
            raise ShapeError(
                f"{label(self)}: wanted a number of channels that the {self.groups} groups divide, received input "
                f"samples of shape {shape}"
            )
        self.add_scale(shape[:1])
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, ...) -> the same shape."""
        groups = x.shape[1] if self.groups is None else self.groups
        return autograd.group_norm(x, groups, self.parameters["gamma"], self.parameters["beta"], self.epsilon)


class LRN(Layer):
    """Normalises over neighbouring channels: y = x / (k + alpha / size * sum of x**2 over `size` neighbouring channels)
    ** beta.

    From Krizhevsky, Sutskever and Hinton 2012, with alpha divided by size as in Caffe, cuDNN and PyTorch;
    channels beyond the first and last count as 0.

    Input and output samples (channels, ...).

    size: odd. alpha: at least 0. beta: at least 0. k: above 0. mode: "cross_channel", the only one.

    >>> net = Sequential([layers.Input((6, 8, 5)), layers.LRN(size=3, alpha=1e-4)])
    >>> net.predict(np.ones((2, 6, 8, 5), "float32")).shape
    (2, 6, 8, 5)
    """

    def __init__(
        self,
        name: str,
        size: int = 5,
        alpha: float = 1.0,
        beta: float = 0.75,
        mode: str = "cross_channel",
        k: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.size = positive_int(self, "size", size)
        if self.size % 2 == 0:
            raise ValueError(f"{label(self)}: wanted size to be odd, received {size}")
        if not isinstance(mode, str) or mode != "cross_channel":
            raise ValueError(f"{label(self)}: wanted mode 'cross_channel', the only one, received {mode!r}")
        self.alpha = number(self, "alpha", alpha, 0)
        self.beta = number(self, "beta", beta, 0)
        self.k = positive(self, "k", k)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        if not self.dtype.type(self.k):
            raise ValueError(f"{label(self)}: wanted k to be a number that {self.dtype} holds, received {self.k}")
        return input_axes(self, shapes, ("channels", "..."))

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, ...) -> the same shape."""
        return autograd.lrn(x, self.size, self.alpha, self.beta, self.k)
