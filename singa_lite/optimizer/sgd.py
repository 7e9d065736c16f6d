"""Stochastic gradient descent, with momentum or without, as in torch.optim.SGD."""

from __future__ import annotations

from singa_lite.checks import flag, fraction, share
from singa_lite.kernels.interface.update import SgdHyper
from singa_lite.optimizer.base import LearningRate, Optimizer
from singa_lite.regularizer import Constraint, Regularizer


class SGD(Optimizer):
    """velocity = momentum * velocity + (1 - dampening) * g, just g at first; value -= lr * velocity.

    g: the gradient + weight_decay * value. momentum 0: value -= lr * g, and no velocity is kept. nesterov:
    value -= lr * (g + momentum * velocity) (Sutskever and others, ICML 2013, in PyTorch's form); it wants a
    momentum and no dampening. momentum: from 0 to below 1; dampening: from 0 to 1, with a momentum.
    """

    kernel = "sgd"
    hyper = SgdHyper
    kernel_slots = ("velocity", "count")

    def __init__(
        self,
        lr: LearningRate = 0.1,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, regularizer=regularizer, constraint=constraint)
        name = type(self).__name__
        momentum, dampening = fraction(f"{name} momentum", momentum), share(f"{name} dampening", dampening)
        if dampening and not momentum:
            raise ValueError(
                f"{name} dampening: wanted a momentum above 0 beside it, received {dampening} and momentum 0"
            )
        nesterov = flag(f"{name} nesterov", nesterov)
        if nesterov and (momentum == 0 or dampening != 0):
            raise ValueError(
                f"{name} nesterov: wanted a momentum above 0 and dampening 0, received {momentum} and {dampening}"
            )
        if momentum == 0:
            self.slots = ("count",)
        self.settings = {"momentum": momentum, "dampening": dampening, "nesterov": nesterov}


class Nesterov(SGD):
    """SGD with Nesterov momentum: value -= lr * (g + momentum * velocity)."""

    def __init__(
        self,
        lr: LearningRate = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        super().__init__(lr, momentum, 0.0, weight_decay, nesterov=True, regularizer=regularizer, constraint=constraint)
