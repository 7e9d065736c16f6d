"""EpochMetric: one value of all samples together, which no mean of batches' values is."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from typing import ClassVar
from warnings import catch_warnings, simplefilter

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.described import is_ours
from singa_lite.layer.criterion import received
from singa_lite.metric.base import Metric
from singa_lite.tensor import Shape, Tensor, from_numpy, to_numpy

#: With how many samples at most a user's class is tried.
_TRIED = 8


class EpochMetric(Metric):
    """The base of the metrics that are exact over all samples of an epoch. A subclass gives `statistics` and `result`.

    A step hands its scores out, as a further output of the net's; the rest is NumPy in float64 on the host, behind
    each step, which so waits for a GPU. Between batches only the statistics are kept.

    gathers: whether statistics are rows that are put one below the other; else `joined` makes one of two.

    >>> class Largest(metric.EpochMetric):
    ...     def statistics(self, scores, target):
    ...         return np.array([np.abs(scores - target).max()])
    ...     joined = staticmethod(np.maximum)
    ...     def result(self, statistics):
    ...         return float(statistics[0])
    >>> print(Largest().evaluate(tensor.as_tensor([[1.0], [4.0]]), tensor.as_tensor([[1.5], [2.0]])))
    2.0
    """

    gathers: ClassVar[bool] = False
    _was_tried = False

    @abstractmethod
    def statistics(self, scores: Array, target: Array) -> Array:
        """What is kept of a batch, float64. scores: (n, ...); target: one that `check` let through."""

    @abstractmethod
    def result(self, statistics: Array) -> float | Array:
        """The value of all samples that the statistics are of; NaN where there is none."""

    def joined(self, before: Array, more: Array) -> Array:
        """The statistics of two lots of samples: their sum."""
        return before + more

    def statistics_of(self, scores: Array, target: Array) -> Array:
        """What `statistics` gives, as an array. TypeError for what is no array of numbers."""
        least = 1 if self.gathers else 0
        return self._numbers("statistics(scores, target)", self.statistics(scores, target), least)

    def result_of(self, statistics: Array) -> Array:
        """What `result` gives, as an array. TypeError for what is no number and no array of numbers."""
        return self._numbers("result(statistics)", self.result(statistics), 0)

    def _numbers(self, what: str, given: object, least: int) -> Array:
        """least: how many axes it must have."""
        try:
            array = np.asarray(given)
        except ValueError:  # rows of unequal lengths
            array = np.empty((), object)
        if array.dtype.kind not in "fiub" or array.ndim < least:
            wanted = "rows of numbers" if least else "a number or an array of numbers"
            raise TypeError(f"{self._name}: wanted {wanted} of {what}, received {given!r:.100}")
        return array

    def check(self, x_shape: Shape, dtype: DType, target: object) -> None:
        """As of any metric. A user's class is tried once, before anything is trained: TypeError for another form."""
        super().check(x_shape, dtype, target)
        if not self._was_tried and not is_ours(type(self)) and isinstance(target, np.ndarray):
            self._try((min(_TRIED, len(target)), *x_shape[1:]), dtype, np.array(target[:_TRIED]))
            self._was_tried = True

    def _try(self, x_shape: Shape, dtype: DType, target: Array) -> None:
        """With scores of zeros. Errors that may come from these values alone are left to the first batch."""
        with np.errstate(all="ignore"), catch_warnings(), suppress(ValueError, ArithmeticError, LookupError):
            simplefilter("ignore")
            found = self.statistics_of(np.zeros(x_shape, dtype), target)
            value = self.result_of(found if self.gathers else self._numbers("joined", self.joined(found, found), 0))
            self.is_number = value.ndim == 0

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        """TypeError: there is no value of one sample."""
        raise TypeError(f"{self._name}: wanted evaluate(x, y), as it has one value of all samples, received forward()")

    def evaluate(self, x: Tensor, y: object) -> Tensor:
        """The value of these samples, float64 (), or of `result`'s shape. Raises as `check` does."""
        target = received(y, f"{self._name}: target")
        self.check(x.shape, x.dtype, target)
        host = to_numpy(target) if isinstance(target, Tensor) else target
        found = self.result_of(self.statistics_of(to_numpy(x), host))
        return from_numpy(found.astype(np.float64), x.device)
