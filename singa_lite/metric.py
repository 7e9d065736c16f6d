"""Metrics: what share of the predictions is right, one value a sample, and the mean over the batch."""

from __future__ import annotations

from abc import ABC, abstractmethod

from singa_lite import autograd
from singa_lite.array_types import DType
from singa_lite.checks import finite, whole
from singa_lite.contexts import in_own_context
from singa_lite.criterion import (
    Criterion,
    Target,
    check_classes,
    check_labels,
    check_probabilities,
    check_same_shape_and_dtype,
)
from singa_lite.errors import ShapeError
from singa_lite.tensor import Shape, Tensor


class Metric(Criterion, ABC):
    """Base of all metrics. A subclass gives `compute`, and `check_target` if not any target will do."""

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

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """Raise unless it holds class ids (n, ...) or rows (n, c, ...), and there are more than k classes.

        Among k of k classes everything is, whatever the scores are.
        """
        check_classes(self._name, x_shape, "BinaryAccuracy")
        check_labels(self._name, x_shape, target)
        if self.k >= x_shape[1]:
            raise ValueError(f"{self._name}: wanted k below the {x_shape[1]} classes, received {self.k}")


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


class BinaryAccuracy(Metric):
    """1 where a score is above the threshold and its target above 1/2, or neither; else 0, as for NaN.

    The mean over each sample. x: scores (n, ...); y: x's shape and dtype, values from 0 to 1.
    threshold: 0 for raw scores, as SigmoidCrossEntropy takes them; 0.5 for probabilities.
    """

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = finite("BinaryAccuracy threshold", threshold)

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        """As the choice between two classes: no, whose score is the threshold's distance from x, and yes."""
        above, yes = (autograd.reshape(t, (x.shape[0], 1, -1)) for t in (x - self.threshold, target))
        scores, rows = autograd.concat([-above, above], 1), autograd.concat([1 - yes, yes], 1)
        values: Tensor = x.device.empty(x.shape[:1], x.dtype)
        x.device.run("in_top_k", scores, rows, values, k=1)
        return values

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """Raise unless it has the scores' shape and dtype, and values from 0 to 1."""
        check_same_shape_and_dtype(self._name, x_shape, dtype, target)
        check_probabilities(self._name, target)


class _AmongLabels(_AmongTopK):
    def __init__(self, top_k: int) -> None:
        super().__init__(top_k)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
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
