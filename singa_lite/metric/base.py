"""Metric: one value a sample, and the mean over the batch, as a part of the step."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from singa_lite import autograd
from singa_lite.common.array_types import Array
from singa_lite.common.contexts import in_own_context
from singa_lite.layer.criterion import Criterion
from singa_lite.tensor import Tensor


class Metric(Criterion, ABC):
    """The base of all metrics. A subclass gives `compute`, and `check_target` if not any target will do.

    name: in the history of `fit`, "accuracy" and "val_accuracy"; a subclass has its own by its class's name, and both
    a class and an object may say another. higher_is_better: whether a callback that monitors it waits for more (True)
    or less; None: nobody knows, and the callback wants a mode.

    >>> class WithinOne(metric.Metric):
    ...     def compute(self, x, target):
    ...         within = autograd.less(autograd.abs(x - target), 1.0)
    ...         return autograd.reduce_mean(autograd.cast(within, x.dtype), axes=1)
    >>> WithinOne().evaluate(tensor.as_tensor([[1.0], [4.0]]), tensor.as_tensor([[1.5], [2.0]])).item()
    0.5
    """

    further_options: ClassVar[frozenset[str]] = frozenset({"name"})
    name: str = "metric"
    #: Whether an epoch's value is one number, which can be monitored.
    is_number = True
    higher_is_better: bool | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = snake_case(cls.__name__)

    @abstractmethod
    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        """One value a sample, (n,), of scores x (n, ...) and a target that `check` let through."""

    @in_own_context
    def forward(self, x: Tensor, y: object) -> Tensor:
        """One value a sample, (n,), in x's dtype. y: Tensor, NumPy, or anything that holds an array.

        Raises as `check` does. No derivative passes through.
        """
        target = self._beside(x, y)
        with autograd.no_grad():
            return self._check_values(x, self.compute(x.detach(), target))

    def evaluate(self, x: Tensor, y: object) -> Tensor:
        """A batch's value, shape (): the mean of forward's values. Raises as `check` does."""
        return self.of_mean(autograd.reduce_mean(self.forward(x, y)))

    def of_mean(self, mean: Tensor) -> Tensor:
        """A batch's value, of the mean of forward's values."""
        return mean

    def count(self, target: Array) -> float:
        """What a batch's value counts as in the mean over an epoch: by its samples, or by its positions that count."""
        return len(target)

    def before_mean(self, value: float) -> float:
        """What of a batch's value is averaged over an epoch."""
        return value

    def after_mean(self, mean: float) -> float:
        """An epoch's value, of the mean of what `before_mean` gives."""
        return mean


def snake_case(name: str) -> str:
    """ "TopKAccuracy" as "top_k_accuracy", "AUC" as "auc"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.strip("_")).lower()
