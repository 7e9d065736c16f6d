"""Metrics by every kernel set against sorting: ties, infinities and NaN; all come of exact comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from every_set import every_own_set
from kernel_case import garbage, run
from singa_lite.kernels.kernel_set import KernelSet

RNG = np.random.default_rng(2)


def values_of(kernels: KernelSet, name: str, x: np.ndarray, target: np.ndarray, k: int) -> np.ndarray:
    """One value a sample."""
    values = garbage(x.shape[:1], x.dtype)
    run(kernels, name, [x, target, values], {"k": k})
    return values


def top_classes(scores: np.ndarray, k: int) -> list[int]:
    """The k best classes of one position: numbers only, higher scores first, then lower classes."""
    real = [c for c in range(len(scores)) if not math.isnan(scores[c])]
    return sorted(real, key=lambda c: (-scores[c], c))[:k]


def positionwise(f: Callable[[np.ndarray, np.ndarray], float], x: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Means over the positions of each sample of f(scores, row of the target)."""
    values = np.empty((x.shape[0], *x.shape[2:]))
    for index in np.ndindex(values.shape):
        whole = (index[0], slice(None), *index[1:])
        values[index] = f(x[whole], target[whole])
    return values.reshape(len(x), -1).mean(1)


def tied_scores(shape: tuple[int, ...]) -> np.ndarray:
    """Scores with many ties, infinities and NaN."""
    choices = np.array([-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf, np.nan])
    return RNG.choice(choices, shape, p=[0.1, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1])


@every_own_set
@pytest.mark.parametrize("shape", [(29, 7), (13, 5, 2, 3), (2, 5, 61, 47), (2, 9001)])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_metrics_against_sorting(kernels: KernelSet, shape, k):
    x, rows = tied_scores(shape), RNG.integers(0, 2, shape)
    ids = RNG.integers(0, shape[1], (shape[0], *shape[2:]))
    one_hot = np.zeros(shape)
    np.put_along_axis(one_hot, np.expand_dims(ids, 1), 1, axis=1)

    def hit(scores: np.ndarray, row: np.ndarray) -> float:
        return float(np.argmax(row) in top_classes(scores, k))

    def found(scores: np.ndarray, row: np.ndarray) -> int:
        return sum(row[c] > 0 for c in top_classes(scores, k))

    wanted = positionwise(hit, x, one_hot)
    for target in (ids, ids.astype(np.uint16), one_hot):
        np.testing.assert_allclose(values_of(kernels, "in_top_k", x, target, k), wanted, rtol=1e-14)
    precision = positionwise(lambda s, row: found(s, row) / k, x, rows)
    np.testing.assert_allclose(values_of(kernels, "precision_at_k", x, rows, k), precision, rtol=1e-14)
    recall = positionwise(lambda s, row: found(s, row) / max(row.sum(), 1), x, rows)
    np.testing.assert_allclose(values_of(kernels, "recall_at_k", x, rows, k), recall, rtol=1e-14)
