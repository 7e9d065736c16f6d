"""EpochMetric: one value of all samples together, which no mean of batches' values is."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.criterion import received
from singa_lite.metric.base import Metric
from singa_lite.tensor import Tensor, from_numpy, to_numpy


class EpochMetric(Metric):
    """Base of the metrics that are exact over all samples. A subclass gives `statistics` and `result`.

    A step hands its scores out, as a further output of the net's; the rest is NumPy in float64 on the host, behind
    each step, which so waits for a GPU. Between batches only the statistics are kept.

    gathers: whether statistics are rows that are put one below the other; else `joined` makes one of two.
    """

    gathers: ClassVar[bool] = False

    @abstractmethod
    def statistics(self, scores: Array, target: Array) -> Array:
        """What is kept of a batch, float64. scores: (n, ...); target: one that `check` let through."""

    @abstractmethod
    def result(self, statistics: Array) -> float | Array:
        """The value of all samples that the statistics are of; NaN where there is none."""

    def joined(self, before: Array, more: Array) -> Array:
        """The statistics of two lots of samples: their sum."""
        return before + more

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        """TypeError: there is no value of one sample."""
        raise TypeError(f"{self._name}: wanted evaluate(x, y), as it has one value of all samples, received forward()")

    def evaluate(self, x: Tensor, y: object) -> Tensor:
        """The value of these samples, float64 (), or of `result`'s shape. Raises as `check` does."""
        target = received(y, f"{self._name}: target")
        self.check(x.shape, x.dtype, target)
        host = to_numpy(target) if isinstance(target, Tensor) else target
        return from_numpy(np.asarray(self.result(self.statistics(to_numpy(x), host)), np.float64), x.device)
