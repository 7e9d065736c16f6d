"""Stochastic gradient descent, with momentum or without, as in torch.optim.SGD."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from singa_lite.common.checks import flag, fraction, share
from singa_lite.device import device_of
from singa_lite.graph.graph import Phase
from singa_lite.kernels.interface.update import SgdHyper
from singa_lite.optimizer.base import LearningRate, Optimizer, Parts
from singa_lite.optimizer.stored_parameters import add_value, run_update
from singa_lite.tensor import Tensor


class SGD(Optimizer):
    """Updates by velocity = momentum * velocity + (1 - dampening) * g, just g at first; value -= lr * velocity.

    g: the gradient + weight_decay * value. momentum 0: value -= lr * g, and no velocity is kept. nesterov:
    value -= lr * (g + momentum * velocity) (Sutskever and others, ICML 2013, in PyTorch's form); it wants a
    momentum and no dampening. momentum: from 0 to below 1; dampening: from 0 to 1, with a momentum.

    >>> w, gradient = tensor.as_tensor([1.0, 2.0]), tensor.as_tensor([0.5, -1.0])
    >>> optimizer.SGD(lr=0.1).update("w", w, gradient)
    >>> print(w.round(3))
    [0.95 2.1 ]
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
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, **parts)
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

    @property
    def slot_of_sums(self) -> str:
        """The velocity, where it is momentum * velocity + gradient + decay * value and moves the value by itself.

        Nesterov's step and a regularizer or constraint want the gradient apart, dampening another share of the first
        one, and state in fewer bits would be rounded for each batch.
        """
        apart = self.settings["nesterov"] or self.settings["dampening"] or self.state_dtype is not None
        apart = apart or any(rule.regularizer is not None or rule.constraint is not None for rule in self.rules)
        return "velocity" if self.settings["momentum"] and not apart else ""

    def begin_sum(self, name: str, value: Tensor) -> None:
        """velocity = momentum * velocity + decay * value."""
        state, device = self.state_for(name, value), device_of(value)
        momentum: Tensor = device.empty((), np.dtype(np.float64))
        device.run("fill", momentum, value=self.settings["momentum"])
        device.run("scale_by", momentum, state["velocity"])
        decay = self.weight_decay * self._rules.of(name).decay_mult
        if decay:
            add_value(value, state, state["velocity"], decay)

    def move(self, name: str, value: Tensor) -> None:
        """value -= lr * velocity, which holds the whole step."""
        state, device = self.state_for(name, value), device_of(value)
        self._note_update(name)
        hyper = SgdHyper(
            momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0, lr_mult=self._rules.of(name).lr_mult
        )
        with device.scope(Phase.UPDATE):
            operands = state["velocity"], self.rate(device), value, None, state["count"]
            run_update(device, "sgd", operands, state, hyper)


class Nesterov(SGD):
    """Updates as SGD with Nesterov momentum: value -= lr * (g + momentum * velocity).

    >>> w, gradient = tensor.as_tensor([1.0, 2.0]), tensor.as_tensor([0.5, -1.0])
    >>> optimizer.Nesterov(lr=0.1, momentum=0.5).update("w", w, gradient)
    >>> print(w.round(3))
    [0.925 2.15 ]
    """

    def __init__(
        self,
        lr: LearningRate = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(lr, momentum, 0.0, weight_decay, nesterov=True, **parts)
