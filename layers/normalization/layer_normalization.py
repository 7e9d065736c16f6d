"""Normalizations of each sample by itself, over its last axes."""

from __future__ import annotations

from typing import Any

from singa_lite import autograd
from singa_lite.layer import initializer
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import axis_of, features_of, init, leaves_time, not_the_batch, one_input, positive
from singa_lite.tensor import Shape, Tensor


class Scaled(Layer):
    """Base of the normalizations whose result is multiplied by gamma and moved by beta."""

    def __init__(
        self,
        name: str,
        *,
        epsilon: float = 1e-5,
        gamma_init: initializer.Spec = 1.0,
        beta_init: initializer.Spec = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.epsilon = positive(self, "epsilon", epsilon)
        self.gamma_init = init(self, "gamma_init", gamma_init)
        self.beta_init = init(self, "beta_init", beta_init)

    def add_scale(self, shape: Shape) -> None:
        """For `setup`: the parameters gamma and beta, of this shape."""
        self.add_parameter("gamma", shape, self.gamma_init)
        self.add_parameter("beta", shape, self.beta_init)


class LayerNormalization(Scaled):
    """Normalises each sample: y = gamma * (x - mean) / sqrt(var + epsilon) + beta (Ba, Kiros and Hinton, arXiv
    1607.06450).

    mean and biased variance are taken over all axes from `axis` on, separately for each index along the
    others.

    Input and output samples of any shape with an axis. Parameters: gamma, beta of the shape from `axis` on.

    axis: counts the batch as 0, negative from the end; never the batch. epsilon: above 0. gamma_init,
    beta_init: an Initializer, its name, or a number.

    >>> net = Sequential([layers.Input((3,)), layers.LayerNormalization()])
    >>> print(net.predict([[1.0, 2.0, 3.0]]).round(3))
    [[-1.225  0.     1.225]]
    """

    passes_mask = True

    def __init__(self, name: str, axis: int = -1, **options: Any) -> None:
        super().__init__(name, **options)
        self.axis = not_the_batch(self, axis)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = one_input(self, shapes)
        axis = axis_of(self, self.axis, shape)
        self.positionwise = leaves_time(axis, shape)
        normalized = shape[axis - 1 :]
        self.any_length = len(normalized) < len(shape)
        self.add_scale(normalized)
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        return autograd.layer_norm(x, self.parameters["gamma"], self.parameters["beta"], self.epsilon)


class RMSNormalization(Layer):
    """Normalises by the root mean square: y = gamma * x / sqrt(mean of x**2 over the last axis + epsilon) (Zhang and
    Sennrich, arXiv 1910.07467).

    Input and output samples (..., features). Parameter: gamma (features,).

    epsilon: above 0. gamma_init: an Initializer, its name, or a number.

    >>> net = Sequential([layers.Input((2,)), layers.RMSNormalization()])
    >>> print(net.predict([[3.0, 4.0]]).round(3))
    [[0.849 1.131]]
    """

    passes_mask = True
    positionwise = True

    def __init__(self, name: str, epsilon: float = 1e-6, *, gamma_init: initializer.Spec = 1.0, **options: Any) -> None:
        super().__init__(name, **options)
        self.epsilon = positive(self, "epsilon", epsilon)
        self.gamma_init = init(self, "gamma_init", gamma_init)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = features_of(self, shapes)
        self.any_length = len(shape) > 1
        self.add_parameter("gamma", shape[-1:], self.gamma_init)
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ..., features) -> the same shape."""
        return autograd.rms_norm(x, self.parameters["gamma"], self.epsilon)


class L2Norm(Layer):
    """Scales each sample to a Euclidean norm of 1: y = x / sqrt(sum of x**2 over the sample + epsilon).

    Input and output samples of any shape. epsilon: above 0.

    >>> net = Sequential([layers.Input((2,)), layers.L2Norm()])
    >>> print(net.predict([[3.0, 4.0]]).round(3))
    [[0.6 0.8]]
    """

    def __init__(self, name: str, epsilon: float = 1e-8, **options: Any) -> None:
        super().__init__(name, **options)
        self.epsilon = positive(self, "epsilon", epsilon)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        return one_input(self, shapes)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        return autograd.l2_norm(x, self.epsilon)
