"""Adafactor, which keeps means of squares of rows and columns in the place of each element's."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.checks import at_least_one, at_least_zero, at_most_zero, gradient_dtype, or_none
from singa_lite.device import device_of
from singa_lite.kernels.interface.update import AdafactorHyper, Hyper
from singa_lite.optimizer.base import COUNT, LearningRate, Optimizer, Parts
from singa_lite.optimizer.stored_parameters import run_update
from singa_lite.tensor import Shape, Tensor


class Adafactor(Optimizer):
    """Updates by value -= max(epsilon_2, rms(value)) * min(lr, t**-0.5) * u / max(1, rms(u) / d), u = g / sqrt(v).

    v: a mean of g**2, to which update t adds the share t**beta_2_decay. Of two axes or more it is kept as the means of
    rows and of columns, along the last two axes; of one it is whole. sqrt(v) is at least epsilon_1, by default the
    smallest step from 1 of the gradient's dtype. rms: the root of the mean of squares. weight_decay: value -= lr *
    weight_decay * value beforehand. As torch.optim.Adafactor (Shazeer and Stern, arXiv 1804.04235), whose eps are
    epsilon_1 and epsilon_2. ValueError for a beta_2_decay above 0 or a d below 1.

    A gradient is needed whole, so none is made in tiles, and parallel=mpi(shard="state") is refused.

    >>> w, gradient = tensor.as_tensor([[1.0, 2.0]]), tensor.as_tensor([[0.5, -1.0]])
    >>> optimizer.Adafactor(lr=0.1).update("w", w, gradient)
    >>> print(w.round(3))
    [[0.842 2.158]]
    """

    kernel = "adafactor"
    hyper = AdafactorHyper
    kernel_slots = ("row_var", "col_var", "variance", "count")
    state_dtypes = ()

    def __init__(
        self,
        lr: LearningRate = 1e-2,
        beta_2_decay: float = -0.8,
        epsilon_1: float | None = None,
        epsilon_2: float = 1e-3,
        d: float = 1.0,
        weight_decay: float = 0.0,
        **parts: Unpack[Parts],
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, **parts)
        self.settings = {
            "beta_2_decay": at_most_zero("Adafactor beta_2_decay", beta_2_decay),
            "epsilon_1": or_none(at_least_zero)("Adafactor epsilon_1", epsilon_1),
            "epsilon_2": at_least_zero("Adafactor epsilon_2", epsilon_2),
            "d": at_least_one("Adafactor d", d),
        }

    def slot_forms(self, value: Tensor, stored: str | None) -> dict[str, tuple[Shape, DType]]:
        """Means of the last axis and of the one before it, or of each element where there is but one axis."""
        shape, dtype = value.shape, gradient_dtype(value.dtype)
        if len(shape) < 2:
            return {"variance": (shape, dtype), "count": COUNT}
        rows, columns = (*shape[:-1], 1), (*shape[:-2], 1, shape[-1])
        return {"row_var": (rows, dtype), "col_var": (columns, dtype), "count": COUNT}

    def run_kernels(
        self, gradient: Tensor, rate: Tensor, value: Tensor, state: dict[str, Tensor], hyper: Hyper
    ) -> None:
        """What goes by the whole gradient, then the elements."""
        device, rows = device_of(value), state.get("row_var")
        kept = [state.get(slot) for slot in self.kernel_slots]
        scale = None if rows is None else device.empty(rows.shape, rows.dtype)
        factor: Tensor = device.empty((), np.dtype(np.float64))
        device.run("adafactor", gradient, rate, value, *kept, scale, factor, hyper=hyper)
        operands = gradient, rate, value, scale, *kept[1:3], factor, kept[3]
        run_update(device, "adafactor_step", operands, state, hyper)
