"""Metrics of the CUDA set: teams of all sizes, layouts, ties, NaN and ids out of range; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_values import INF, NAN

from kernel_case import garbage
from layouts import PAIRS, check, serves
from test_loss_values import ids, rows

Array = np.ndarray

SHAPES = [(1, 1), (70, 2), (9, 10), (5, 33), (2, 300), (3, 5, 7, 6), (2, 21, 1, 3), (60, 3, 1, 1), (2, 4, 5)]
OF_ROWS = ["in_top_k", "precision_at_k", "recall_at_k"]


def scores(*shape: int, dtype: Any = np.float32) -> Array:
    """Whole numbers with ties."""
    return np.random.default_rng(4).integers(0, 6, shape).astype(dtype)


def labels(x: Array) -> Array:
    """Rows with about a third of the labels, often none."""
    return np.random.default_rng(8).random(x.shape) < 0.3


def check_all(kernels: Any, x: Array, lay: Any = PAIRS["c order"], ks: Any = (1, 3, 40)) -> None:
    """Every metric, of ids and rows."""
    values = garbage(x.shape[:1], x.dtype)
    for k in ks:
        check(kernels, "in_top_k", [lay[0](x), ids(x), values], {"k": k}, roundings=4)
        for name in OF_ROWS:
            target = rows(x) if name == "in_top_k" else labels(x)
            check(kernels, name, [lay[0](x), lay[1](target), values], {"k": k}, roundings=4)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sizes(cuda, shape, dtype):
    check_all(cuda, scores(*shape, dtype=dtype))


@pytest.mark.parametrize("lay", PAIRS.values(), ids=PAIRS)
def test_layouts(cuda, lay):
    check_all(cuda, scores(3, 5, 4, 7), lay)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float64"])
def test_rows_of_any_dtype(cuda, dtype):
    x = scores(6, 11)
    for name in OF_ROWS:
        check(cuda, name, [x, rows(x, dtype), garbage((6,), np.float32)], {"k": 3}, roundings=4)


def test_largest_entry_of_rows_with_nan_and_ties(cuda):
    x = np.tile(np.arange(40, dtype=np.float32), (4, 1))
    target = np.zeros((4, 40), np.float32)
    target[0, [35, 38]], target[1, [37, 39]], target[2, [3, 36]], target[3, 38] = 1, NAN, [INF, INF], -1
    for k in (1, 2, 3, 4, 5, 37, 40):
        check(cuda, "in_top_k", [x, target, garbage((4,), np.float32)], {"k": k})


def test_what_is_left_to_others(cuda):
    x, values = scores(3, 5), garbage((3,), np.float32)
    assert not serves(cuda, "in_top_k", [x, np.zeros(3, np.float32), values], {"k": 1}), "ids of floats"
    assert not serves(cuda, "precision_at_k", [x, ids(x), values], {"k": 1}), "ids"
