"""Metrics: what share of the predictions is right, one value a sample, and the mean over the batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from singa_lite import autograd
from singa_lite.checks import whole
from singa_lite.contexts import in_own_context
from singa_lite.errors import ShapeError
from singa_lite.target import Criterion, Target, check_labels
from singa_lite.tensor import Shape, Tensor


class Metric(Criterion, ABC):
    """Base of all metrics. A subclass gives `compute`, and `check_target` if not any target will do."""

    @abstractmethod
    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        """One value a sample, (n,), of scores x (n, ...) and a target that `check` let through."""

    @in_own_context
    def forward(self, x: Tensor, y: Any) -> Tensor:
        """One value a sample, (n,), in x's dtype. y: Tensor, NumPy, or anything that holds an array.

        Raises as `check` does. No derivative passes through.
        """
        target = self._beside(x, y)
        with autograd.no_grad():
            return self._check_values(x, self.compute(x.detach(), target))

    def evaluate(self, x: Tensor, y: Any) -> Tensor:
        """The mean of forward's values, shape (). Raises as `check` does."""
        return autograd.reduce_mean(self.forward(x, y))


class _AmongTopK(Metric):
    """Base of the metrics over the k highest scores of x (n, c, ...); ties go to the lower class."""

    kernel: str

    def __init__(self, k: int) -> None:
        self.k = whole(f"{self._name} k", k, 1)

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        values: Tensor = x.device.empty(x.shape[:1], x.dtype)
        x.device.run(self.kernel, x, target, values, k=self.k)
        return values

    def check_target(self, x_shape: Shape, dtype: np.dtype[Any], target: Target) -> None:
        """Raise unless it holds class ids (n, ...) or rows (n, c, ...), and there are k classes."""
        check_labels(self._name, x_shape, target)
        if self.k > x_shape[1]:
            raise ValueError(f"{self._name}: wanted k of at most the {x_shape[1]} classes, received {self.k}")


class TopKAccuracy(_AmongTopK):
    """1 where the target's class is among the k highest scores, else 0; the mean over a sample's positions.

    y: integer class ids (n, ...), or rows (n, c, ...) whose largest entry names the class.
    """

    kernel = "in_top_k"

    def __init__(self, k: int = 5) -> None:
        super().__init__(k)


class Accuracy(TopKAccuracy):
    """1 where the target's class has the highest score, else 0; of equal scores the lowest class is taken.

    y: integer class ids (n, ...), or rows (n, c, ...) whose largest entry names the class.
    """

    def __init__(self) -> None:
        super().__init__(1)


class _AmongLabels(_AmongTopK):
    def __init__(self, top_k: int) -> None:
        super().__init__(top_k)

    def check_target(self, x_shape: Shape, dtype: np.dtype[Any], target: Target) -> None:
        """Raise unless it holds rows of the scores' shape, and there are k classes."""
        super().check_target(x_shape, dtype, target)
        if target.shape != x_shape:
            raise ShapeError(f"{self._name}: wanted a target of the scores' shape {x_shape}, received {target.shape}")


class Precision(_AmongLabels):
    """How many of the `top_k` highest scores are labels, divided by top_k.

    The mean over a sample's positions. y: rows (n, c, ...), a label where above 0.
    """

    kernel = "precision_at_k"


class Recall(_AmongLabels):
    """How many labels are among the `top_k` highest scores, divided by how many there are; 0 without labels.

    The mean over a sample's positions. y: rows (n, c, ...), a label where above 0.
    """

    kernel = "recall_at_k"
