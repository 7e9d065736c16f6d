"""Optimizers that divide by a running size of the gradient: RMSProp, AdaGrad, Adam, AdamW."""

from __future__ import annotations

from typing import Unpack

from singa_lite.common.checks import finite_above_zero, flag, fraction
from singa_lite.kernels.interface.update import AdaGradHyper, AdamHyper, RmsPropHyper
from singa_lite.optimizer.base import LearningRate, Optimizer, Parts


class RMSProp(Optimizer):
    """Updates by square_average = rho * square_average + (1 - rho) * g**2; value -= lr * g / (sqrt(square_average) +
    epsilon).

    g: the gradient + weight_decay * value. As torch.optim.RMSprop, whose alpha is rho (Tieleman and Hinton, 2012).

    >>> w, gradient = tensor.as_tensor([1.0, 2.0]), tensor.as_tensor([0.5, -1.0])
    >>> optimizer.RMSProp(lr=0.1).update("w", w, gradient)
    >>> print(w.round(3))
    [0.684 2.316]
    """

    kernel = "rms_prop"
    hyper = RmsPropHyper
    kernel_slots = ("square_average", "count")

    def __init__(
        self,
        lr: LearningRate = 0.01,
        rho: float = 0.9,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, **parts)
        self.settings = {
            "rho": fraction("RMSProp rho", rho),
            "epsilon": finite_above_zero("RMSProp epsilon", epsilon),
        }


class AdaGrad(Optimizer):
    """Updates by square_sum += g**2; value -= lr * g / (sqrt(square_sum) + epsilon).

    g: the gradient + weight_decay * value. As torch.optim.Adagrad (Duchi and others, JMLR 12, 2011).

    >>> w, gradient = tensor.as_tensor([1.0, 2.0]), tensor.as_tensor([0.5, -1.0])
    >>> optimizer.AdaGrad(lr=0.1).update("w", w, gradient)
    >>> print(w.round(3))
    [0.9 2.1]
    """

    kernel = "ada_grad"
    hyper = AdaGradHyper
    kernel_slots = ("square_sum", "count")

    def __init__(
        self,
        lr: LearningRate = 0.01,
        epsilon: float = 1e-10,
        weight_decay: float = 0.0,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, **parts)
        self.settings = {"epsilon": finite_above_zero("AdaGrad epsilon", epsilon)}


class Adam(Optimizer):
    """Updates by moments m = beta_1 * m + (1 - beta_1) * g and v = beta_2 * v + (1 - beta_2) * g**2; in update t:

    value -= lr / (1 - beta_1**t) * m / (sqrt(v / (1 - beta_2**t)) + epsilon). g: the gradient + weight_decay *
    value. As torch.optim.Adam (Kingma and Ba, arXiv 1412.6980). amsgrad: the largest v so far divides in the place of
    v (Reddi and others, ICLR 2018); it is kept as a third number for each parameter.

    >>> w, gradient = tensor.as_tensor([1.0, 2.0]), tensor.as_tensor([0.5, -1.0])
    >>> optimizer.Adam(lr=0.1).update("w", w, gradient)
    >>> print(w.round(3))
    [0.9 2.1]
    """

    kernel = "adam"
    hyper = AdamHyper
    kernel_slots = ("first_moment", "second_moment", "max_second_moment", "count")
    decoupled = False

    def __init__(
        self,
        lr: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        amsgrad: bool = False,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, **parts)
        name = type(self).__name__
        self.amsgrad = flag(f"{name} amsgrad", amsgrad)
        if not self.amsgrad:
            self.slots = ("first_moment", "second_moment", "count")
        self.settings = {
            "beta_1": fraction(f"{name} beta_1", beta_1),
            "beta_2": fraction(f"{name} beta_2", beta_2),
            "epsilon": finite_above_zero(f"{name} epsilon", epsilon),
            "decoupled": self.decoupled,
        }


class AdamW(Adam):
    """Updates as Adam, with weight decay apart from the gradient: value -= lr * weight_decay * value beforehand.

    As torch.optim.AdamW (Loshchilov and Hutter, arXiv 1711.05101).

    >>> w, gradient = tensor.as_tensor([1.0, 2.0]), tensor.as_tensor([0.5, -1.0])
    >>> optimizer.AdamW(lr=0.1, weight_decay=0.5).update("w", w, gradient)
    >>> print(w.round(3))
    [0.85 2.  ]
    """

    decoupled = True

    def __init__(
        self,
        lr: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        amsgrad: bool = False,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(lr, beta_1, beta_2, epsilon, weight_decay, amsgrad=amsgrad, **parts)
