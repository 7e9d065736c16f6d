"""Lion, which moves each element by the sign of a mean of gradients."""

from __future__ import annotations

from typing import Unpack

from singa_lite.common.checks import fraction
from singa_lite.kernels.interface.update import LionHyper
from singa_lite.optimizer.base import LearningRate, Optimizer, Parts


class Lion(Optimizer):
    """Updates by value -= lr * (sign(beta_1 * m + (1 - beta_1) * g) + weight_decay * value); then

    m = beta_2 * m + (1 - beta_2) * g. g: the gradient; m: the momentum, its one number for each parameter. As the
    authors' code (Chen and others, arXiv 2302.06675). Its rate is a third to a tenth of AdamW's, its decay as much
    larger.

    >>> w, gradient = tensor.as_tensor([1.0, 2.0]), tensor.as_tensor([0.5, -1.0])
    >>> optimizer.Lion(lr=0.1).update("w", w, gradient)
    >>> print(w.round(3))
    [0.9 2.1]
    """

    kernel = "lion"
    hyper = LionHyper
    kernel_slots = ("momentum", "count")

    def __init__(
        self,
        lr: LearningRate = 1e-4,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        weight_decay: float = 0.0,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, **parts)
        self.settings = {"beta_1": fraction("Lion beta_1", beta_1), "beta_2": fraction("Lion beta_2", beta_2)}
