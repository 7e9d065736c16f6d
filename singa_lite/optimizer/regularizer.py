"""Constraints on the size of a gradient before its update, and regularizers that add to it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from singa_lite.common.checks import above_zero, at_least_zero
from singa_lite.common.described import Described
from singa_lite.tensor import Tensor


class Regularizer(Described, ABC):
    """The base of all regularizers: the derivative of a penalty on the parameter's values.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile(optimizer.SGD(lr=0.1, regularizer=regularizer.L2Regularizer(1e-4)), "mse")
    >>> isinstance(net.optimizer.regularizer, regularizer.Regularizer)
    True
    """

    @abstractmethod
    def apply(self, value: Tensor, gradient: Tensor, decay_mult: float = 1.0) -> None:
        """Add `decay_mult` times the penalty's derivative to `gradient`, which is like `value`."""


class L2Regularizer(Regularizer):
    """Adds coefficient * decay_mult * value to the gradient, from the penalty coefficient / 2 * sum of value**2.

    So it is the optimizers' weight decay, and half of Keras's l2: `keras.regularizers.l2(c)` is L2Regularizer(2 * c).
    The loss that is reported is without the penalty, Keras's is with it.

    >>> w, gradient = tensor.as_tensor([1.0, 2.0]), tensor.as_tensor([0.0, 0.0])
    >>> optimizer.SGD(lr=0.1, regularizer=regularizer.L2Regularizer(0.5)).update("w", w, gradient)
    >>> print(w.round(3))
    [0.95 1.9 ]
    """

    def __init__(self, coefficient: float) -> None:
        self.coefficient = at_least_zero("L2Regularizer coefficient", coefficient)

    def apply(self, value: Tensor, gradient: Tensor, decay_mult: float = 1.0) -> None:
        alpha = self.coefficient * decay_mult
        if alpha:
            gradient.device.run("add_scaled", value, gradient, alpha=alpha)


class Constraint(Described, ABC):
    """The base of the constraints on a gradient.

    >>> w, gradient = tensor.as_tensor([1.0, 2.0]), tensor.as_tensor([0.5, -4.0])
    >>> optimizer.SGD(lr=0.1, constraint=regularizer.ElementConstraint(1.0)).update("w", w, gradient)
    >>> print(w.round(3))
    [0.95 2.1 ]
    """

    @abstractmethod
    def apply(self, gradient: Tensor) -> None:
        """Change `gradient` in place so that it keeps to the constraint."""


class _Clip(Constraint):
    """kernel: what does it; threshold: above 0, infinity for no bound."""

    kernel: str

    def __init__(self, threshold: float) -> None:
        self.threshold = above_zero(f"{type(self).__name__} threshold", threshold)

    def apply(self, gradient: Tensor) -> None:
        gradient.device.run(self.kernel, gradient, threshold=self.threshold)


class ElementConstraint(_Clip):
    """Clips each element of a gradient to [-threshold, threshold].

    >>> w, gradient = tensor.as_tensor([1.0, 2.0]), tensor.as_tensor([0.5, -4.0])
    >>> optimizer.SGD(lr=0.1, constraint=regularizer.ElementConstraint(1.0)).update("w", w, gradient)
    >>> print(w.round(3))
    [0.95 2.1 ]
    """

    kernel = "clip_elements"


class NormConstraint(_Clip):
    """Scales a gradient whose L2 norm exceeds `threshold` down to it; never up.

    The norm is that of one parameter's gradient, not of all together (Pascanu and others, arXiv 1211.5063).

    >>> w, gradient = tensor.as_tensor([1.0, 2.0]), tensor.as_tensor([3.0, -4.0])
    >>> optimizer.SGD(lr=0.1, constraint=regularizer.NormConstraint(1.0)).update("w", w, gradient)
    >>> print(w.round(3))
    [0.94 2.08]
    """

    kernel = "clip_norm"
